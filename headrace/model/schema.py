"""Tables, columns and the logical types every sink maps from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

__all__ = ["Column", "Digits", "LogicalType", "TableId", "TableSchema", "declared_keys"]


class LogicalType(str, Enum):
    """What a column means, independent of how Postgres, Debezium or a store spell it.

    The value of each in a :class:`~headrace.model.change.Change` row is noted beside it.
    """

    BOOLEAN = "boolean"  # bool
    INT16 = "int16"  # int
    INT32 = "int32"  # int
    INT64 = "int64"  # int
    FLOAT32 = "float32"  # float, may be nan or ±inf
    FLOAT64 = "float64"  # float, may be nan or ±inf
    NUMERIC = "numeric"  # str in Postgres' own spelling, e.g. "1.10", "NaN"
    TEXT = "text"  # str
    UUID = "uuid"  # str
    ENUM = "enum"  # str
    JSON = "json"  # str, the document's text
    BYTES = "bytes"  # bytes
    DATE = "date"  # int, days since 1970-01-01 (proleptic Gregorian), or "infinity", "-infinity"
    TIME = "time"  # int, microseconds since midnight
    TIMESTAMP = "timestamp"  # int, microseconds since 1970-01-01 00:00, no zone, or as for a date
    TIMESTAMPTZ = "timestamptz"  # str, ISO-8601 in UTC with a trailing Z, or as for a date
    INTERVAL = "interval"  # str, ISO-8601 duration, or as for a date
    OTHER = "other"  # str, the type's text output


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A table of the source, by schema and name exactly as the catalogue spells them."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        """Return the SQL identifier, safe to paste into a statement."""
        return ".".join('"' + part.replace('"', '""') + '"' for part in (self.schema, self.name))


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Args:
        name: Catalogue spelling.
        type: Logical type of the value, or of one element when ``dimensions`` > 0.
        dimensions: 0 for a scalar, n for an n-dimensional array as declared, 1 for a vector.
        nullable: False when the catalogue forbids NULL.
        native: The catalogue's type text, e.g. ``numeric(12,2)``.
        precision: Digits of a numeric, if declared.
        scale: Digits after the point of a numeric, if declared.
        type_name: The bare name of the type: below domains, without its schema.
        compared_otherwise: Whether the connector compares values of it by another order than it sorts them
            by, or by none. Only columns of the key are asked about.
        computed: Whether the database computes it from the row's other columns. No record carries it; it is
            looked up by the row's key.
    """

    name: str
    type: LogicalType
    dimensions: int = 0
    nullable: bool = True
    native: str = ""
    precision: int | None = None
    scale: int | None = None
    computed: bool = False
    type_name: str = field(default="", compare=False)
    compared_otherwise: bool = field(default=False, compare=False)

    @property
    def base(self) -> str:
        """Return the bare name of the type; of a column that an older version has noted what it is called."""
        return self.type_name or self.native


Digits = tuple[int | None, int | None]
"""Of a numeric: all that it may have, and those after the point; None where none are declared."""


@dataclass(frozen=True)
class TableSchema:
    """A table's columns in catalogue order and the columns that identify a row.

    Args:
        table: Which table.
        columns: All captured columns.
        key: Names of the identifying columns in key order; never empty.
        extra: What only the connector wants to know.
        declared: Whether the key was declared by the user and is not the primary key.
        former: Names of columns that the table had once: records of then carry them.
    """

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False)
    declared: bool = False
    former: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        names = {column.name for column in self.columns}
        missing = [name for name in self.key if name not in names]
        if not self.key or missing:
            raise ValueError(f"{self.table} has no usable key: {missing or 'empty'}")

    @cached_property
    def digits(self) -> dict[str, Digits]:
        """Return how many digits the numerics have, by name."""
        return {c.name: (c.precision, c.scale) for c in self.columns if c.type is LogicalType.NUMERIC}

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """Return the columns by name."""
        return {column.name: column for column in self.columns}

    @property
    def told(self) -> tuple[Column, ...]:
        """Return the columns that records carry."""
        return tuple(column for column in self.columns if not column.computed)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """Return the key's columns in key order."""
        return tuple(self.by_name[name] for name in self.key)

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready form that :meth:`from_dict` inverts."""
        return {
            "schema": self.table.schema,
            "name": self.table.name,
            "key": list(self.key),
            "declared": self.declared,
            "former": list(self.former),
            "columns": [
                {
                    "name": c.name,
                    "type": c.type.value,
                    "dimensions": c.dimensions,
                    "nullable": c.nullable,
                    "native": c.native,
                    "precision": c.precision,
                    "scale": c.scale,
                    "computed": c.computed,
                    "type_name": c.type_name,
                    "compared_otherwise": c.compared_otherwise,
                }
                for c in self.columns
            ],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> TableSchema:
        """Build a schema from :meth:`as_dict`'s form."""
        return cls(
            table=TableId(value["schema"], value["name"]),
            columns=tuple(
                Column(
                    name=c["name"],
                    type=LogicalType(c["type"]),
                    dimensions=c["dimensions"],
                    nullable=c["nullable"],
                    native=c["native"],
                    precision=c["precision"],
                    scale=c["scale"],
                    computed=c.get("computed", False),
                    type_name=c.get("type_name", ""),
                    compared_otherwise=c.get("compared_otherwise", False),
                )
                for c in value["columns"]
            ),
            key=tuple(value["key"]),
            declared=value.get("declared", False),
            former=tuple(value.get("former", ())),
        )


def declared_keys(schemas: Iterable[TableSchema]) -> dict[TableId, tuple[str, ...]]:
    """Return the keys that the user has declared, of those tables that have one."""
    return {schema.table: schema.key for schema in schemas if schema.declared}
