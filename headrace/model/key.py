"""A row's identity, defined once: equal keys give equal ids, different keys give different ids."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from msgspec import Struct

__all__ = ["SEPARATOR", "Key", "escape", "ids", "unescape"]

SEPARATOR = ":"
_UNSAFE = re.compile(r"[%:\x00-\x1f\x7f]")
_NULL = "%null"
_EMPTY = "%empty"


def escape(part: str) -> str:
    """Return ``part`` with ``%``, ``:`` and control characters percent-encoded (reversible)."""
    return _UNSAFE.sub(lambda match: f"%{ord(match.group()):02X}", part)


def unescape(part: str) -> str:
    """Invert :func:`escape`."""
    return re.sub(r"%([0-9A-F]{2})", lambda match: chr(int(match.group(1), 16)), part)


def _escaped(part: str | None) -> str:
    if part is None:
        return _NULL
    # Most parts hold nothing to escape; asking that is cheaper than looking for it.
    if part and part.isprintable() and ":" not in part and "%" not in part:
        return part
    return escape(part) or _EMPTY


def _unescaped(part: str) -> str | None:
    if part == _NULL:
        return None
    return "" if part == _EMPTY else unescape(part)


class Key(Struct, frozen=True, order=True, gc=False):
    """The identifying values of one row, in key order, each in its canonical text form.

    Build it with :func:`headrace.model.values.key_of`, which knows the canonical form of each
    type; two values that Postgres calls equal have one canonical form.

    Args:
        parts: Canonical text of each key column; None for a NULL of a declared unique key.
    """

    parts: tuple[str | None, ...]

    @classmethod
    def of(cls, parts: Sequence[str | None]) -> Key:
        """Build a key from canonical texts."""
        return cls(tuple(parts))

    @classmethod
    def of_id(cls, text: str) -> Key:
        """Build the key whose :attr:`id` is this."""
        return cls(tuple(_unescaped(part) for part in text.split(SEPARATOR)))

    @property
    def escaped(self) -> tuple[str, ...]:
        """Return each part percent-encoded; NULL is ``%null`` and "" is ``%empty``, which no text gives."""
        return tuple([_escaped(part) for part in self.parts])

    @property
    def id(self) -> str:
        """Return the parts, percent-encoded, joined by ``:``; injective and readable."""
        return SEPARATOR.join(self.escaped)

    def id_within(self, max_bytes: int) -> str:
        """Return :attr:`id` when it fits ``max_bytes`` of UTF-8, else ``%sha256-<hex>``.

        ``%s`` begins no escape sequence, so a hash never collides with a readable id.
        """
        text = self.id
        if len(text.encode()) <= max_bytes:
            return text
        return "%sha256-" + hashlib.sha256(text.encode()).hexdigest()


def ids(keys: Sequence[Key]) -> list[str]:
    """Return each key's :attr:`~Key.id`; of many keys at once, cheaper than asking one by one."""
    parts = [key.parts for key in keys]
    if {*map(len, parts)} == {1}:
        # As in _escaped; a call for each would take most of the time.
        return [
            part if part and part.isprintable() and ":" not in part and "%" not in part else _escaped(part)
            for (part,) in parts
        ]
    return [SEPARATOR.join([_escaped(part) for part in named]) for named in parts]
