"""Data files: Parquet, written whole, on the disk for good before a commit names them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.model.values import date_text, timestamp_text
from headrace.observe.disk import sync
from sinks.delta.beside import beside

__all__ = [
    "DataFile",
    "Needed",
    "conform",
    "count_rows",
    "fit_together",
    "live_parts",
    "new_name",
    "parts",
    "pieces",
    "small",
    "statistics",
    "sync_all",
    "unfit_file",
    "within",
    "without",
    "write",
]

_ROWS = 65_536
_BYTES = 32 << 20
_SMALL = 4
"""A file of less than a quarter of these is small."""
_TINY = 16
"""A file of less than a sixteenth of these is tiny."""

# Files are rewritten often: what makes them smaller at the price of a second pass does not pay.
_FORMAT: dict[str, Any] = {"compression": "snappy", "use_dictionary": False, "store_schema": False}

_DAYS = (-719_162, 2_932_896)  # years 1 … 9999, which every reader of statistics understands
_MICROS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)
_STATISTICS_COLUMNS = 32
_LONG = 2_048


@dataclass(frozen=True, slots=True, eq=False)
class DataFile:
    """A data file of a table.

    Args:
        path: Relative to the table, as the log has it.
        size: Bytes.
        rows: Rows in it, deleted ones included.
        deleted: Rows that a deletion vector hides, ascending.
        vector: That vector's descriptor, as the log has it.
        statistics: What the log says of its content, where known.
    """

    path: str
    size: int
    rows: int
    deleted: np.ndarray | None = None
    vector: Mapping[str, Any] | None = None
    statistics: str | None = None

    @property
    def live(self) -> int:
        """Return how many rows a reader sees."""
        return self.rows - (0 if self.deleted is None else len(self.deleted))

    @property
    def log_statistics(self) -> str:
        """Return the statistics for a commit that names the file."""
        known = json.loads(self.statistics) if self.statistics else {"numRecords": self.rows}
        # Of a file with hidden rows the extremes are bounds still, but maybe of rows that are gone.
        return json.dumps(known | ({"tightBounds": False} if self.vector is not None else {}))

    @property
    def small(self) -> bool:
        """Return whether the file is better joined with others."""
        return self.live < _ROWS // _SMALL and self.size < _BYTES // _SMALL // 2

    @property
    def tiny(self) -> bool:
        """Return whether joining it with others costs next to nothing."""
        return self.live < _ROWS // _TINY and self.size < _BYTES // _TINY // 2


@dataclass(frozen=True, slots=True)
class Needed:
    """A file that a table consists of.

    Args:
        path: Relative to the table.
        size: How many bytes it has, as the log says; of a file of vectors: at least.
        exact: Whether it has no more.
    """

    path: str
    size: int
    exact: bool


def unfit_file(directory: Path, files: Iterable[Needed]) -> str | None:
    """Return what is wrong with one of a table's files; None when all are there, as long as they have to be.

    Raises:
        OSError: The file system does not say.
    """
    for file in files:
        try:
            size = (directory / file.path).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return f"is missing in {directory}"
        if size < file.size or (file.exact and size > file.size):
            return f"in {directory} was cut or overwritten: it has {size:,} bytes instead of {file.size:,}"
    return None


def small(table: pa.Table) -> bool:
    """Return whether rows are too few for a file of their own."""
    return len(table) < _ROWS // _SMALL and table.nbytes < _BYTES // _SMALL


def fit_together(files: Sequence[DataFile]) -> bool:
    """Return whether the rows of files make one file of good size."""
    return sum(file.live for file in files) <= _ROWS and sum(file.size for file in files) <= _BYTES


def pieces(table: pa.Table) -> list[pa.Table]:
    """Return the table cut so that each piece makes a file of good size."""
    if not len(table):
        return []
    rows = _part_rows(len(table), table.nbytes)
    return [table.slice(start, rows) for start in range(0, len(table), rows)]


def _part_rows(rows: int, size: int) -> int:
    return int(min(_ROWS, max(256, _BYTES * rows // max(size, 1))))


def sync_all(paths: Sequence[Path]) -> None:
    """Force files to the disk, all at once: one journal entry of the file system may serve them all.

    Raises:
        OSError: The disk refuses; what was written may be lost.
    """
    others = [beside(sync, path) for path in paths[1:]]
    try:
        if paths:
            sync(paths[0])
    finally:
        wait(others)
    for other in others:
        other.result()


def new_name() -> str:
    """Return a file name that no file has."""
    return f"part-{uuid.uuid4()}.snappy.parquet"


def write(path: Path, table: pa.Table) -> None:
    """Write a table as one file, which is yet to be forced to the disk.

    Raises:
        OSError: The disk refuses; nothing is left behind.
    """
    try:
        pq.write_table(table, path, **_FORMAT)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def count_rows(path: Path) -> int:
    """Return how many rows a file has."""
    return int(pq.read_metadata(path).num_rows)


def statistics(table: pa.Table) -> str:
    """Return row count and, of whole-number and time columns, the extremes that readers skip files by."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in table.column_names[:_STATISTICS_COLUMNS]:
        column = table[name]
        nulls[name] = column.null_count
        spell = _speller(column.type)
        if spell is None or column.null_count == len(table):
            continue
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
        extremes = pc.min_max(column)
        first, last = spell(extremes["min"].as_py()), spell(extremes["max"].as_py())
        if first is not None and last is not None:
            low[name], high[name] = first, last
    return json.dumps({"numRecords": len(table), "minValues": low, "maxValues": high, "nullCount": nulls})


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
    """Return rows with a table's columns: those added later NULL, types as the table has them now."""
    if table.schema.equals(schema):
        return table
    present = set(table.column_names)
    columns = [
        table[field.name].cast(field.type) if field.name in present else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def parts(directory: Path, file: DataFile, schema: pa.Schema) -> Iterator[tuple[int, pa.Table]]:
    """Yield a file's rows in order, deleted ones included, with the number of the first of each part.

    A file of this sink comes in one part; one that another writer has made large comes in many.

    Raises:
        FileNotFoundError: Another writer has removed the file.
    """
    # Spark writes times of 12 bytes; as nanoseconds those beyond 2262 would be other times.
    with pq.ParquetFile(directory / file.path, coerce_int96_timestamp_unit="us") as source:
        about = source.metadata
        size = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
        rows = _part_rows(about.num_rows, size)
        if about.num_rows <= 2 * rows:
            yield 0, conform(source.read(), schema)
            return
        start = 0
        for batch in source.iter_batches(batch_size=rows):
            yield start, conform(pa.Table.from_batches([batch]), schema)
            start += len(batch)


def live_parts(directory: Path, file: DataFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield a file's rows as a reader sees them."""
    for start, part in parts(directory, file, schema):
        yield part if file.deleted is None else without(part, within(file.deleted, start, len(part)))


def without(part: pa.Table, rows: np.ndarray) -> pa.Table:
    """Return a table without some rows, given by ascending numbers."""
    if len(rows) * _LONG > len(part):
        stays: np.ndarray = np.ones(len(part), np.bool_)
        stays[rows] = False
        return part.filter(pa.array(stays))
    # What lies between few rows need not be copied, but each piece is work to the writer.
    bounds = [-1, *rows.tolist(), len(part)]
    slices = [part.slice(a + 1, b - a - 1) for a, b in pairwise(bounds) if b - a > 1]
    return pa.concat_tables(slices) if slices else part.slice(0, 0)


def within(rows: np.ndarray, start: int, count: int) -> np.ndarray:
    """Return those of ascending row numbers that fall into a part, counted from its start."""
    first, last = np.searchsorted(rows, start), np.searchsorted(rows, start + count)
    return rows[first:last] - start
