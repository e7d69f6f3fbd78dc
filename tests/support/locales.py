"""Locales of their own for a Postgres server: how a country writes amounts of money."""

from __future__ import annotations

import struct
from pathlib import Path

__all__ = ["write_dutch_money", "write_money"]

_NAMES = {0: "ja_JP.utf8", 2: "nl_NL.utf8", 3: "ar_KW.utf8"}
"""By the digits after the point; all else is as in the Netherlands."""
_MAGIC = 0x20031115 ^ 4  # of the C library's files, and the number of this category
_EURO = "€".encode() + b"\0"
_SIGNS = (b"\1", b"\1", b"\1", b"\2", b"\1", b"\4")
"""Where sign and symbol stand, whether with a blank, for positive and negative amounts."""
_AMOUNT = (b"EUR \0", _EURO, b",\0", b".\0", b"\3\3\0", b"\0", b"-\0")
_REST = (
    *_SIGNS,
    *(b"-" + _EURO, *_SIGNS),
    *(b"EUR \0", _EURO, b"\2", b"\2", *_SIGNS[:4], *_SIGNS[:4], *_SIGNS[4:], b"\1"),
)
_NUMBERS = (4, 10_101, 99_991_231, 10_101, 99_991_231, (1, 1), ord(","), ord("."))


def write_dutch_money(folder: Path) -> str:
    """Write the locale that has two digits after the point; see :func:`write_money`."""
    return write_money(folder, 2)


def write_money(folder: Path, digits: int) -> str:
    """Write a locale into a directory that ``LOCPATH`` may name; return the locale's name.

    It has no category but this one; servers before Postgres 18 do not ask for another.

    Args:
        folder: The directory.
        digits: 0, 2 or 3 after the point.
    """
    numbers = [
        struct.pack(f"={len(n)}I", *n) if isinstance(n, tuple) else struct.pack("=I", n) for n in _NUMBERS
    ]
    fields = (*_AMOUNT, *2 * (bytes([digits]),), *_REST)
    count = len(fields) + len(numbers) + 1
    content, offsets = bytearray(), []
    for field in (*fields, *numbers, b"UTF-8\0"):
        offsets.append(8 + 4 * count + len(content))
        content += field
    target = folder / _NAMES[digits]
    target.mkdir()
    (target / "LC_MONETARY").write_bytes(struct.pack(f"={2 + count}I", _MAGIC, count, *offsets) + content)
    for path in (folder, target):
        path.chmod(0o755)
    (target / "LC_MONETARY").chmod(0o644)
    return _NAMES[digits]
