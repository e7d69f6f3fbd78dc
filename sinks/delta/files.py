"""Data files: Parquet, written whole, on disk for good before a commit names them."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.model.values import date_text, timestamp_text

__all__ = ["DataFile", "conform", "count_rows", "new_name", "parts", "statistics", "sync", "write"]

_DAYS = (-719_162, 2_932_896)  # years 1 … 9999, which every reader of statistics understands
_MICROS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)
_STATISTICS_COLUMNS = 32


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a table.

    Args:
        path: Relative to the table, as the log has it.
        size: Bytes.
        rows: Rows in it.
    """

    path: str
    size: int
    rows: int


def sync(path: Path) -> None:
    """Force a file or directory to the disk.

    Raises:
        OSError: The disk refuses; what was written may be lost.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def new_name() -> str:
    """Return a file name that no file has."""
    return f"part-{uuid.uuid4()}.zstd.parquet"


def write(path: Path, table: pa.Table) -> None:
    """Write a table as one file that survives a power cut.

    Raises:
        OSError: The disk refuses; nothing is left behind.
    """
    try:
        pq.write_table(table, path, compression="zstd", use_dictionary=False, store_schema=False)
        sync(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def count_rows(path: Path) -> int:
    """Return how many rows a file has."""
    return int(pq.read_metadata(path).num_rows)


def statistics(table: pa.Table) -> str:
    """Return a file's row count and extremes as the log has them."""
    return json.dumps(_statistics(table))


def _statistics(table: pa.Table) -> dict[str, Any]:
    """Return row count and, for the first whole-number and time columns, the extremes readers skip files by."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in table.column_names[:_STATISTICS_COLUMNS]:
        column = table[name]
        nulls[name] = column.null_count
        spell = _speller(column.type)
        if spell is None or column.null_count == table.num_rows:
            continue
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
        extremes = pc.min_max(column)
        first, last = spell(extremes["min"].as_py()), spell(extremes["max"].as_py())
        if first is not None and last is not None:
            low[name], high[name] = first, last
    return {"numRecords": table.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _speller(kind: pa.DataType) -> Any:
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_date(kind):
        return lambda days: date_text(days) if _DAYS[0] <= days <= _DAYS[1] else None
    if pa.types.is_timestamp(kind):
        utc = kind.tz is not None
        return lambda us: timestamp_text(us, utc=utc) if _MICROS[0] <= us <= _MICROS[1] else None
    return None


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a file's rows with the table's columns: later ones NULL, types as the table has them."""
    if table.schema.equals(schema):
        return table
    present = set(table.column_names)
    columns = [
        table[field.name].cast(field.type)
        if field.name in present
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def parts(directory: Path, file: DataFile, schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
    """Yield a file's rows in order, all at once, or ``rows`` at a time when it holds many more.

    Raises:
        FileNotFoundError: Another writer has removed the file.
    """
    with pq.ParquetFile(directory / file.path) as source:
        if source.metadata.num_rows <= 2 * rows:
            yield conform(source.read(), schema)
            return
        for batch in source.iter_batches(batch_size=rows):
            yield conform(pa.Table.from_batches([batch]), schema)
