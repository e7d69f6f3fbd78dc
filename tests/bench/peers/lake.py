"""The lake of the plain consumer: a MERGE per batch, guarded by the row's version."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema

from tests.bench.peers.consumer import Row, Table

__all__ = ["DeltaWriter"]

_STAMP = pa.timestamp("us", tz="UTC")
_TYPES = {
    "boolean": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "numeric": pa.decimal128(38, 2),
    "date": pa.date32(),
    "timestamptz": _STAMP,
}
_VERSION, _GONE = "_version", "_gone"


def _column(kind: str, values: list[Any]) -> pa.Array:
    wanted = _TYPES.get(kind, pa.string())
    spelled = kind in ("numeric", "timestamptz")
    return pa.array(values, pa.string()).cast(wanted) if spelled else pa.array(values, wanted)


class DeltaWriter:
    """Delta tables below one directory, through the ``deltalake`` package."""

    def __init__(self, root: str, tables: Sequence[Table]) -> None:
        self._tables: dict[str, DeltaTable] = {}
        for table in tables:
            path = Path(root) / table.target
            path.mkdir(parents=True)
            fields = [pa.field(name, _TYPES.get(kind, pa.string())) for name, kind in table.types.items()]
            schema = pa.schema([*fields, pa.field(_VERSION, pa.int64())])
            self._tables[table.target] = DeltaTable.create(str(path), schema=Schema.from_arrow(schema))

    def write(self, rows: Iterator[Row]) -> None:
        by_target: Callable[[Row], str] = attrgetter("table.target")
        for target, some in groupby(sorted(rows, key=by_target), by_target):
            # A MERGE takes each row once: of several changes of a row, the last.
            latest = list({row.key: row for row in some}.values())
            self._merge(self._tables[target], latest)

    @staticmethod
    def _merge(delta: DeltaTable, rows: list[Row]) -> None:
        types = rows[0].table.types
        images = [row.image for row in rows]
        columns = {name: _column(kind, [image.get(name) for image in images]) for name, kind in types.items()}
        columns[_VERSION] = pa.array([row.version for row in rows], pa.int64())
        columns[_GONE] = pa.array([row.gone for row in rows], pa.bool_())
        same = " AND ".join(f"t.{name} = s.{name}" for name in rows[0].table.key)
        newer = f"s.{_VERSION} >= t.{_VERSION}"
        values = {name: f"s.{name}" for name in (*types, _VERSION)}
        (
            delta.merge(pa.table(columns), same, source_alias="s", target_alias="t")
            .when_matched_delete(f"s.{_GONE} AND {newer}")
            .when_matched_update(values, f"NOT s.{_GONE} AND {newer}")
            .when_not_matched_insert(values, f"NOT s.{_GONE}")
            .execute()
        )
