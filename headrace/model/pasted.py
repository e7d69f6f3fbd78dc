"""Names that others have given, in what is told to be pasted: no name ends the line that it stands in.

A table may be called so that what follows a line end in its name is a statement. Inside a quoted SQL
identifier it is a part of the name; behind ``--`` it would be run.
"""

from __future__ import annotations

import re
import shlex

__all__ = ["command", "remark", "word"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


def command(*words: str) -> str:
    """Return a command line of which each word reaches the program as it is."""
    return " ".join(map(word, words))


def word(text: str) -> str:
    r"""Return one word of a command line, in one line itself.

    Where a text holds line ends and the like it is written as shells of today read it: ``$'a\x0ab'``.
    """
    if not _CONTROL.search(text):
        return shlex.quote(text)
    plain = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_CONTROL.sub(lambda found: _escaped(found.group()), plain)}'"


def remark(text: str) -> str:
    """Return a name for a comment of SQL, where a line end would end the comment."""
    return _CONTROL.sub(" ", text)


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode())
