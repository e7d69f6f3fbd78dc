"""Types that bear the names of pgvector's and PostGIS' and keep their values as text.

The connector knows those types by name and reads them as text. So a server without the extensions sends it
what one with them would, as long as the values are as the extensions print them; records of the real ones are
in ``tests/golden``.
"""

from __future__ import annotations

__all__ = ["STAND_INS"]

_NAMES = ("vector", "halfvec", "sparsevec", "geometry", "geography")
_TYPE = """
CREATE TYPE {0};
CREATE FUNCTION {0}_in(cstring) RETURNS {0} LANGUAGE internal IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION {0}_out({0}) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
CREATE TYPE {0} (INPUT = {0}_in, OUTPUT = {0}_out, LIKE = text,
                 TYPMOD_IN = varchartypmodin, TYPMOD_OUT = varchartypmodout)
"""

STAND_INS = tuple(_TYPE.format(name) for name in _NAMES)
"""Statements that make them; they need a superuser."""
