"""A locale of its own for a Postgres server: how the Netherlands write amounts of money."""

from __future__ import annotations

import struct
from pathlib import Path

__all__ = ["write_dutch_money"]

_NAME = "nl_NL.utf8"
_MAGIC = 0x20031115 ^ 4  # of the C library's files, and the number of this category
_EURO = "€".encode() + b"\0"
_SIGNS = (b"\1", b"\1", b"\1", b"\2", b"\1", b"\4")
"""Where sign and symbol stand, whether with a blank, for positive and negative amounts."""
_FIELDS = (
    *(b"EUR \0", _EURO, b",\0", b".\0", b"\3\3\0", b"\0", b"-\0", b"\2", b"\2", *_SIGNS),
    *(b"-" + _EURO, *_SIGNS),
    *(b"EUR \0", _EURO, b"\2", b"\2", *_SIGNS[:4], *_SIGNS[:4], *_SIGNS[4:], b"\1"),
)
_NUMBERS = (4, 10_101, 99_991_231, 10_101, 99_991_231, (1, 1), ord(","), ord("."))


def write_dutch_money(folder: Path) -> str:
    """Write the locale into a directory that ``LOCPATH`` may name; return the locale's name.

    It has no other category; servers before Postgres 18 do not ask for one.
    """
    numbers = [
        struct.pack(f"={len(n)}I", *n) if isinstance(n, tuple) else struct.pack("=I", n) for n in _NUMBERS
    ]
    count = len(_FIELDS) + len(numbers) + 1
    content, offsets = bytearray(), []
    for field in (*_FIELDS, *numbers, b"UTF-8\0"):
        offsets.append(8 + 4 * count + len(content))
        content += field
    target = folder / _NAME
    target.mkdir()
    (target / "LC_MONETARY").write_bytes(struct.pack(f"={2 + count}I", _MAGIC, count, *offsets) + content)
    for path in (folder, target):
        path.chmod(0o755)
    (target / "LC_MONETARY").chmod(0o644)
    return _NAME
