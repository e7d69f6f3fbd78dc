"""The lake, read with the Delta reader that needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from headrace.demo.compare import Found
from headrace.demo.stores.base import Asked, Facts
from headrace.model.key import Key
from headrace.model.schema import TableSchema
from headrace.model.values import key_of

__all__ = ["LakeStore"]


class LakeStore:
    """Reads by path; facts: ``path``."""

    def __init__(self, name: str, facts: Facts) -> None:
        self.name = name
        self._facts = facts
        self._seen: dict[str, tuple[int, set[Key]]] = {}
        self._tables: dict[str, DeltaTable] = {}

    def counts(self, tables: Sequence[str]) -> dict[str, int]:
        return {table: int(self._open(table).to_pyarrow_dataset().count_rows()) for table in tables}

    def rows(self, schema: TableSchema) -> Iterator[Found]:
        dataset = self._open(schema.table.name).to_pyarrow_dataset()
        for batch in dataset.to_batches(batch_size=4_000):
            yield from (Found(None, row) for row in _plain(batch).to_pylist())

    def some(self, schema: TableSchema, keys: Sequence[Key]) -> Iterator[Found]:
        wanted = set(keys)
        dataset = self._open(schema.table.name).to_pyarrow_dataset()
        for batch in dataset.to_batches(batch_size=4_000):
            for row in _plain(batch).to_pylist():
                if key_of(schema, row) in wanted:
                    yield Found(None, row)

    def address(self, schema: TableSchema, key: Key) -> None:
        return None

    def present(self, asked: Sequence[Asked]) -> set[Asked]:
        held = {schema.table: self._keys(schema) for schema in dict(asked)}
        return {(schema, key) for schema, key in asked if key in held[schema.table]}

    def close(self) -> None:
        self._seen.clear()
        self._tables.clear()

    def _keys(self, schema: TableSchema) -> set[Key]:
        """Return all keys; read again only when the table has a new version."""
        table = self._open(schema.table.name)
        version, held = self._seen.get(schema.table.name, (-1, set[Key]()))
        if table.version() != version:
            columns = _plain(table.to_pyarrow_table(columns=list(schema.key))).to_pylist()
            held = {key_of(schema, row) for row in columns}
            self._seen[schema.table.name] = (table.version(), held)
        return held

    def _open(self, table: str) -> DeltaTable:
        """Return the table as it is now; of its log only what is new is read."""
        known = self._tables.get(table)
        if known is None:
            known = self._tables[table] = DeltaTable(str(self._facts[table]["path"]))
        else:
            known.update_incremental()
        return known


def _plain(table: Any) -> pa.Table:
    """Return the columns with dates and times as integers and decimals as digits, as they are stored."""
    table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    for place, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            kind: Any = pa.int64()
        elif pa.types.is_date32(column.type):
            kind = pa.int32()
        elif pa.types.is_decimal(column.type):
            kind = pa.string()
        else:
            continue
        table = table.set_column(place, column.name, pc.cast(table.column(place), kind))
    return table
