"""The error tree: one sentence, one stable code, one hint, one retry class.

    HeadraceError
    ├── UsageError            the caller asked for something that cannot be
    ├── EnvironmentError_     the machine lacks what is needed (disk, port, network, version)
    ├── StackError            a server of the local stack did not start, stop or answer
    ├── SourceError           the database or its connector refuses
    │   └── LoginRefused      the same, for user or password
    ├── SinkError             the store refuses; record trouble is an Outcome, never this
    │   ├── SinkUnavailable   the same, but waiting helps
    │   └── SinkWentBack      it is not as it was left; looking at it again helps
    └── DecodeError           bytes that are no change (becomes a Poison, never leaves decode)

Retry decisions read ``retry``, never the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from headrace.model.schema import TableId

__all__ = [
    "DecodeError",
    "EnvironmentError_",
    "HeadraceError",
    "LoginRefused",
    "Retry",
    "SinkError",
    "SinkUnavailable",
    "SinkWentBack",
    "SourceError",
    "StackError",
    "UsageError",
    "is_interruption",
    "named",
    "naming",
]


class Retry(Enum):
    """What a caller should do about an error."""

    NEVER = "never"
    AFTER_REPAIR = "after_repair"
    LATER = "later"


class HeadraceError(Exception):
    """An error a person can act on.

    Args:
        message: One sentence that says what is wrong, with names, never with secrets or row values.
        code: Stable upper-case identifier, e.g. ``SOURCE_WAL_LEVEL``.
        hint: What to do now, e.g. the SQL to paste. May be empty. ``SOURCE`` and ``SINK`` in it stand for
            names that are not known where the error is made; whoever shows it fills them in.
    """

    retry: ClassVar[Retry] = Retry.NEVER
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, code: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint

    def as_dict(self) -> dict[str, str]:
        """Return the error as ``{"code", "message", "hint"}``, the form every edge prints."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class UsageError(HeadraceError):
    """The request itself cannot be carried out; the same request will fail again."""

    exit_code = 2


class EnvironmentError_(HeadraceError):
    """The machine lacks something: disk, port, network, a Python or Java version."""

    retry = Retry.AFTER_REPAIR


class StackError(HeadraceError):
    """A server of the local stack did not start, stop or answer."""

    retry = Retry.AFTER_REPAIR


class SourceError(HeadraceError):
    """The source database or its connector refuses or has lost history."""

    retry = Retry.AFTER_REPAIR


class LoginRefused(SourceError):
    """The source database answers, and takes user or password for wrong."""


class SinkError(HeadraceError):
    """The store refuses in a way that waiting does not cure.

    Args:
        message: See :class:`HeadraceError`.
        code: See :class:`HeadraceError`.
        hint: See :class:`HeadraceError`.
        table: The table whose target alone is meant; None when it is the whole store.
    """

    retry = Retry.AFTER_REPAIR

    def __init__(self, message: str, *, code: str, hint: str = "", table: TableId | None = None) -> None:
        super().__init__(message, code=code, hint=hint)
        self.table = table


class SinkUnavailable(SinkError):
    """The store does not answer, or asks for patience; the same call may work later."""

    retry = Retry.LATER


class SinkWentBack(SinkError):
    """The store is not as it was when its progress was last looked at: it was put back, or others wrote.

    Nothing may be written before the next look, for what it has gone back to is the only evidence of what it
    lacks. So the same call is not to be made again, as that of a store that is away is.
    """

    retry = Retry.LATER


class DecodeError(HeadraceError):
    """Bytes that do not decode to a change."""


def is_interruption(error: BaseException) -> bool:
    """Return whether somebody has pressed Ctrl-C; libraries in C say so in a way of their own."""
    return isinstance(error, KeyboardInterrupt) or (
        isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt)
    )


def named(hint: str, *, source: str, sink: str = "SINK") -> str:
    """Return a hint with the names of source and sink in it."""
    names = {"SOURCE": source, "SINK": sink}
    return re.sub(r"\b(SOURCE|SINK)\b", lambda found: names[found[1]], hint)


@contextmanager
def naming(source: str, sink: str = "SINK") -> Iterator[None]:
    """Fill the names of source and sink into the hints of errors."""
    try:
        yield
    except HeadraceError as error:
        error.hint = named(error.hint, source=source, sink=sink)
        raise
