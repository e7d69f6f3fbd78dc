"""Locales of their own for a Postgres server: how a country writes amounts of money."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

__all__ = ["write_dutch", "write_dutch_money", "write_money"]

_NAMES = {0: "ja_JP.utf8", 2: "nl_NL.utf8", 3: "ar_KW.utf8"}
"""By the digits after the point; all else is as in the Netherlands."""
_MAGIC = 0x20031115
"""Of the C library's files; each has it with the number of its category."""
_NUMERIC, _TIME, _MONETARY, _MESSAGES = 1, 2, 4, 5
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
_CODESET = b"UTF-8\0"
_DAYS = (
    *("zo", "ma", "di", "wo", "do", "vr", "za"),
    *("zondag", "maandag", "dinsdag", "woensdag", "donderdag", "vrijdag", "zaterdag"),
)
_MONTHS = (
    *("jan", "feb", "mrt", "apr", "mei", "jun", "jul", "aug", "sep", "okt", "nov", "dec"),
    *("januari", "februari", "maart", "april", "mei", "juni"),
    *("juli", "augustus", "september", "oktober", "november", "december"),
)
_WHOLE = "%a %d %b %Y %T %Z"
_FORMATS = (_WHOLE, "%d-%m-%Y", "%T", "")


def write_dutch(folder: Path) -> str:
    """Write the locale that has two digits after the point with numbers, words, days and months, too.

    See :func:`write_money`.
    """
    name = write_dutch_money(folder)
    target = folder / name
    _write(target / "LC_NUMERIC", _NUMERIC, [b",\0", b".\0", b"\3\3\0", *map(_number, b",."), _CODESET])
    _write(target / "LC_MESSAGES", _MESSAGES, [b"^[+1jJyY]\0", b"^[-0nN]\0", b"ja\0", b"nee\0", _CODESET])
    words = (*_DAYS, *_MONTHS, "", "", *_FORMATS)
    months = (_MONTHS[12:], _MONTHS[:12])
    calendar = [
        *map(_text, (*words, *6 * ("",))),  # the last ones are of eras
        *(_number(0), _text("")),
        *map(_wide, (*words, *5 * ("",))),
        *(b"\7", _number(19_971_130), b"\4", b"\2", b"\2", b"\1", _text("")),
        *(_text(_WHOLE), _wide(_WHOLE), _CODESET),
        *(spell(month) for twelve in months for spell in (_text, _wide) for month in twelve),
    ]
    _write(target / "LC_TIME", _TIME, calendar)
    return name


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
    numbers = [struct.pack(f"={len(n)}I", *n) if isinstance(n, tuple) else _number(n) for n in _NUMBERS]
    target = folder / _NAMES[digits]
    target.mkdir()
    for path in (folder, target):
        path.chmod(0o755)
    amount = (*_AMOUNT, *2 * (bytes([digits]),))
    _write(target / "LC_MONETARY", _MONETARY, [*amount, *_REST, *numbers, _CODESET])
    return _NAMES[digits]


def _text(word: str) -> bytes:
    return word.encode() + b"\0"


def _wide(word: str) -> bytes:
    return b"".join(_number(ord(letter)) for letter in f"{word}\0")


def _number(number: int) -> bytes:
    return struct.pack("=I", number)


def _write(path: Path, category: int, values: Sequence[bytes]) -> None:
    """Write a category as the C library maps it: how many values there are, where each is, and the values."""
    content, offsets = bytearray(), []
    for value in values:
        offsets.append(8 + 4 * len(values) + len(content))
        content += value + bytes(-len(value) % 4)  # a number has to stand at a multiple of four
    head = struct.pack(f"={2 + len(values)}I", _MAGIC ^ category, len(values), *offsets)
    path.write_bytes(head + content)
    path.chmod(0o644)
