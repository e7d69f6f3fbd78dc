"""A source table's columns as a Delta table's: names, types and the metadata columns beside the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from headrace.model.schema import Column, LogicalType, TableSchema
from sinks.unheld import Policy

__all__ = [
    "COMMITTED_MS",
    "KEY",
    "LSN",
    "METADATA",
    "OFFSET",
    "TX",
    "UNHELD",
    "VERSION",
    "Field",
    "Shape",
    "limited",
    "shape_of",
]

_NOT_SPARKS = frozenset(" ,;{}()\n\t=")
"""Spark takes none of these in the name of a column, unless the table maps columns."""

KEY = "_headrace_key"
VERSION = "_headrace_version"
OFFSET = "_headrace_offset"
LSN = "_headrace_lsn"
TX = "_headrace_tx"
COMMITTED_MS = "_headrace_committed_ms"
UNHELD = "_headrace_unheld"
"""Values that their columns cannot hold, as a JSON object by the source's names of the columns; else NULL.

Only tables whose sink is told to keep such values have this column."""

METADATA = (
    pa.field(KEY, pa.string()),  # Key.id
    pa.field(VERSION, pa.int64()),  # Position.version
    pa.field(OFFSET, pa.int64()),  # Kafka offset of the change, in its topic's partition
    pa.field(LSN, pa.int64()),
    pa.field(TX, pa.int64()),
    pa.field(COMMITTED_MS, pa.int64()),
)
"""Columns behind the data, for readers and for the sink itself."""

MAX_DECIMAL_DIGITS = 38

_TYPES: dict[LogicalType, pa.DataType] = {
    LogicalType.BOOLEAN: pa.bool_(),
    LogicalType.INT16: pa.int16(),
    LogicalType.INT32: pa.int32(),
    LogicalType.INT64: pa.int64(),
    # A source writes a four-byte float in its shortest decimal form. As a double that number is kept as
    # written; as a float a reader would see 0.10000000149011612 for 0.1.
    LogicalType.FLOAT32: pa.float64(),
    LogicalType.FLOAT64: pa.float64(),
    LogicalType.BYTES: pa.binary(),
    LogicalType.DATE: pa.date32(),
    LogicalType.TIMESTAMP: pa.timestamp("us"),
    LogicalType.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True, slots=True)
class Field:
    """One column on both sides.

    Args:
        column: The source's.
        name: Its name in the Delta table.
        scalar: Arrow type of a value, or of an array's element.
        unheld: What becomes of a value that does not fit.
    """

    column: Column
    name: str
    scalar: pa.DataType
    unheld: Policy = Policy.REFUSE

    @property
    def type(self) -> pa.DataType:
        """Return the Arrow type of the column: the scalar's, in as many lists as the array has dimensions."""
        return self.list_of(self.column.dimensions)

    def list_of(self, depth: int) -> pa.DataType:
        """Return the Arrow type of values in that many lists."""
        kind = self.scalar
        for _ in range(depth):
            kind = pa.list_(pa.field("element", kind))
        return kind


@dataclass(frozen=True, slots=True)
class Shape:
    """A table's columns in the lake.

    Args:
        fields: The data columns in catalogue order.
        arrow: Data and metadata columns.
    """

    fields: tuple[Field, ...]
    arrow: pa.Schema

    @property
    def keeps_unheld(self) -> bool:
        """Return whether values that do not fit are kept beside the row."""
        return any(field.unheld is not Policy.REFUSE for field in self.fields)

    @property
    def renamed(self) -> dict[str, str]:
        """Return source name → name in the lake, for the columns where they differ."""
        return {f.column.name: f.name for f in self.fields if f.name != f.column.name}

    @property
    def unalterable(self) -> list[str]:
        """Return the names in the lake with which Spark alters no table, unless it maps columns."""
        return [field.name for field in self.fields if _NOT_SPARKS.intersection(field.name)]


def _scalar(column: Column) -> pa.DataType:
    if column.type is LogicalType.NUMERIC:
        return _numeric(column)
    return _TYPES.get(column.type, pa.string())


def _numeric(column: Column) -> pa.DataType:
    """Return a decimal where the catalogue bounds the digits, else a string, which holds any number."""
    if column.precision is None:
        return pa.string()
    scale = column.scale or 0
    # numeric(3,-2) has five digits before the point; numeric(2,4) has four behind it.
    precision = max(column.precision - min(scale, 0), scale)
    return pa.decimal128(precision, max(scale, 0)) if precision <= MAX_DECIMAL_DIGITS else pa.string()


def _name(wanted: str, taken: set[str]) -> str:
    """Return ``wanted``, with ``~2``, ``~3`` … behind it when a name equal but for case is taken."""
    name, number = wanted, 1
    while name.casefold() in taken:
        number += 1
        name = f"{wanted}~{number}"
    taken.add(name.casefold())
    return name


def limited(column: Column) -> bool:
    """Return whether Postgres has values of a column's type that the lake's type does not have."""
    if column.type is LogicalType.NUMERIC:
        return bool(pa.types.is_decimal(_numeric(column)))
    return column.type in (LogicalType.DATE, LogicalType.TIMESTAMP, LogicalType.TIMESTAMPTZ)


@lru_cache(maxsize=1024)
def shape_of(schema: TableSchema, unheld: tuple[tuple[str, Policy], ...] = ()) -> Shape:
    """Return the shape of a table.

    Delta tells columns apart without regard to case, so of two that differ by case only, and of one that
    is called like a metadata column, the later gets a number behind its name.

    Args:
        schema: The table.
        unheld: Columns whose values are not refused when they do not fit, and what becomes of them.
    """
    taken = {name.casefold() for name in (*(field.name for field in METADATA), UNHELD)}
    policies = dict(unheld)
    fields = tuple(
        Field(
            column,
            _name(column.name, taken),
            _scalar(column),
            policies.get(column.name, Policy.REFUSE) if limited(column) else Policy.REFUSE,
        )
        for column in schema.columns
    )
    columns = [pa.field(f.name, f.type) for f in fields] + list(METADATA)
    if any(field.unheld is not Policy.REFUSE for field in fields):
        columns.append(pa.field(UNHELD, pa.string()))
    return Shape(fields, pa.schema(columns))
