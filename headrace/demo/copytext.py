"""Rows in the text format of Postgres' COPY."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from itertools import islice
from typing import Any
from uuid import UUID

__all__ = ["Row", "blocks"]

Row = Sequence[Any]


def blocks(rows: Iterable[Row], size: int = 500) -> Iterator[bytes]:
    """Yield the rows as bytes to send, ``size`` rows at a time."""
    lines = ("\t".join(map(_field, row)) + "\n" for row in rows)
    while block := "".join(islice(lines, size)):
        yield block.encode()


_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def _field(value: Any) -> str:
    """Return one field of COPY's text format."""
    if value is None:
        return "\\N"
    if isinstance(value, str):
        return value.translate(_ESCAPES)
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, (int, float, Decimal, UUID)):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return "\\\\x" + value.hex()
    if isinstance(value, list):
        return ("{" + ",".join(map(_element, value)) + "}").translate(_ESCAPES)
    return json.dumps(value, ensure_ascii=False).translate(_ESCAPES)


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
