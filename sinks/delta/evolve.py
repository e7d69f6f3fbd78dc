"""A source table whose columns have changed: what the lake's table can follow, and what it cannot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema, write_deltalake

from headrace.model.errors import SinkError
from sinks.delta.files import DataFile, conform, live_parts
from sinks.delta.log import by_library

__all__ = ["evolve", "refuse_retyped", "rewritten"]


def evolve(delta: DeltaTable, directory: Path, files: Iterable[DataFile], wanted: pa.Schema) -> bool:
    """Make a table's columns those wanted; return whether anything was changed.

    New columns are added, NULL in the rows that are there. Columns that are wanted no more stay, NULL in
    rows to come. A column that became wider (more digits, larger integers) has its files written anew.

    Raises:
        SinkError: ``DELTA_COLUMN_TYPE``: a column's type changed to one its values do not pass into.
    """
    refuse_retyped(delta, directory, wanted)
    present = pa.schema(delta.schema().to_arrow())
    added = [field for field in wanted if field.name not in present.names]
    changed = _changed(present, wanted)
    if added:
        columns = Schema.from_arrow(pa.schema(added)).fields
        delta.alter.add_columns(
            [Field(column.name, column.type) for column in columns], commit_properties=by_library()
        )
    if changed:
        types = {field.name: field.type for field in changed}
        after = pa.schema([f.with_type(types.get(f.name, f.type)) for f in [*present, *added]])
        write_deltalake(
            delta,
            pa.RecordBatchReader.from_batches(after, rewritten(directory, files, after)),
            mode="overwrite",
            schema_mode="overwrite",
            commit_properties=by_library(),
        )
    return bool(added or changed)


def refuse_retyped(delta: DeltaTable, directory: Path, wanted: pa.Schema) -> None:
    """Refuse columns whose values do not pass into the type that is wanted (``DELTA_COLUMN_TYPE``)."""
    present = pa.schema(delta.schema().to_arrow())
    for field in _changed(present, wanted):
        if not _widens(present.field(field.name).type, field.type):
            raise SinkError(
                f"Column “{field.name}” of {directory} is {present.field(field.name).type} in the lake"
                f" and would have to become {field.type}.",
                code="DELTA_COLUMN_TYPE",
                hint="Build the table anew from the source.",
            )


def _changed(present: pa.Schema, wanted: pa.Schema) -> list[pa.Field]:
    return [f for f in wanted if f.name in present.names and f.type != present.field(f.name).type]


def rewritten(directory: Path, files: Iterable[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of files as rows of ``schema``."""
    for file in files:
        for part in live_parts(directory, file, schema):
            yield from conform(part, schema).to_batches()


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether every value of the old type is a value of the new one."""
    if pa.types.is_list(old) and pa.types.is_list(new):
        return old.value_type == new.value_type or _widens(old.value_type, new.value_type)
    if pa.types.is_integer(old) and pa.types.is_integer(new):
        return bool(new.bit_width >= old.bit_width)
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    if pa.types.is_integer(old) and pa.types.is_decimal(new):
        return bool(new.precision - new.scale >= len(str(2 ** (old.bit_width - 1))))
    return bool(pa.types.is_decimal(old) and pa.types.is_string(new))
