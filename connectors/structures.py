"""Values that the connector takes apart, put together again as their type's own text output.

PostGIS' types arrive as ``{"wkb": base64 of the EWKB, "srid": …}`` and pgvector's ``sparsevec`` as
``{"dimensions": n, "vector": [[index, value], …]}``, in any order.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

__all__ = ["output", "single_text"]

_FIXED = range(-4, 6)  # exponents of numbers that Postgres prints without one


def output(value: Any) -> str:
    """Return what Postgres prints for a value: itself when it is a text already.

    Raises:
        ValueError: When it is none of the structures above.
        TypeError: When it is no structure.
        KeyError: When a part of it is missing.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        raise TypeError("neither a text nor a structure")
    if "wkb" in value:
        # The EWKB tells the SRID, too; PostGIS prints it in upper case.
        return base64.b64decode(value["wkb"], validate=True).hex().upper()
    pairs = sorted((int(index), float(number)) for index, number in value["vector"])
    inner = ",".join(f"{index}:{single_text(number)}" for index, number in pairs)
    return f"{{{inner}}}/{int(value['dimensions'])}"


def single_text(number: float) -> str:
    """Return a number as Postgres prints it as ``real``.

    Args:
        number: Read from Postgres' own text, whose at most nine digits are those of its shortest form.

    Raises:
        ValueError: When it is not finite, which no element of a vector is.
    """
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    if not isinstance(exponent, int):
        raise ValueError("a vector holds finite numbers only")
    text = "".join(map(str, digits))
    power = exponent + len(text) - 1 if any(digits) else 0
    text = text.strip("0") or "0"
    minus = "-" if sign else ""
    if power not in _FIXED:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        return f"{minus}{text[0]}{fraction}e{power:+03d}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{text}"
    whole, fraction = text[: power + 1].ljust(power + 1, "0"), text[power + 1 :]
    return f"{minus}{whole}.{fraction}" if fraction else f"{minus}{whole}"
