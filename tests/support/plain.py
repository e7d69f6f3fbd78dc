"""The stores of a mirror read with plain clients, by published facts and the documented spelling of names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from headrace.control.registry import Registry
from headrace.demo.compare import Comparison, Expected, Found, compare
from headrace.demo.original import Original
from headrace.demo.pipeline import open_stores
from headrace.demo.stores.base import Store
from headrace.model.key import Key
from headrace.model.schema import TableSchema
from tests.support.mirror import KINDS, Mirror

__all__ = ["compared", "differing"]

_ID_BYTES = 512
_CAPTURED = """
SELECT array_agg(attname::text ORDER BY attname) FROM pg_attribute
WHERE attrelid = '{}'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated <> 'v'
"""

Facts = Mapping[str, Any]


def differing(mirror: Mirror) -> list[dict[str, Any]]:
    """Return what is not equal, store by store and table by table."""
    return [found.as_dict() for found in compared(mirror) if not found.equal]


def compared(mirror: Mirror) -> Iterator[Comparison]:
    """Compare every row of every table in every store with what Postgres itself says, both ways."""
    registry = Registry(mirror.context.registry)
    tables = registry.source(mirror.name).tables
    sinks = {f"{mirror.name}{short}": kind for short, kind in KINDS.items()}
    facts = {name: registry.sink(name).tables for name in sinks}
    stores = open_stores(mirror.context, mirror.stack.endpoints, source=mirror.name, sinks=sinks)
    with ExitStack() as closing:
        for store in stores:
            closing.callback(store.close)
        for table in tables:
            expected = _original(mirror, table.schema)
            for store in stores:
                yield _compared(store, sinks[store.name], facts[store.name][table.topic], expected)


def _original(mirror: Mirror, schema: TableSchema) -> Expected:
    names = mirror.database.value(_CAPTURED.format(schema.table.quoted.replace("'", "''")))
    assert {column.name for column in schema.columns} == set(names)
    with Original.open(mirror.database.dsn, schema.table.schema) as original:
        return Expected(schema, original.rows(schema))


def _compared(store: Store, kind: str, facts: Facts, expected: Expected) -> Comparison:
    schema = expected.schema
    found = (replace(row, row=_row(kind, facts, schema, row)) for row in store.rows(schema))
    return compare(store.name, expected, found, lambda key: _address(kind, facts, schema, key))


def _row(kind: str, facts: Facts, schema: TableSchema, found: Found) -> Mapping[str, Any]:
    """Return the row under its columns' own names."""
    if kind == "delta":
        renamed = facts.get("renamed", {})
        return {
            column.name: found.row.get(renamed.get(column.name, column.name)) for column in schema.columns
        }
    own = ("_headrace", "_headrace_source")
    return {unquote(name): value for name, value in found.row.items() if name not in own}


def _address(kind: str, facts: Facts, schema: TableSchema, key: Key) -> str | None:
    if kind == "delta":
        return None
    parts = dict(zip(schema.key, key.escaped, strict=True))
    template = str(facts["id_template" if kind == "elasticsearch" else "key_template"])
    place = re.sub(r"\{([^{}]*)\}", lambda match: parts[unquote(match[1])], template)
    if kind == "elasticsearch" and len(place.encode()) > _ID_BYTES:
        return "%sha256-" + hashlib.sha256(place.encode()).hexdigest()
    return place
