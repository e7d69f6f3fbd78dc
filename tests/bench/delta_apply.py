"""How long the lake sink takes to apply changes to tables of different sizes.

    python -m tests.bench.delta_apply [--vectors] [rows …]
    python -m tests.bench.delta_apply growth [--vectors] [rows …]

Twelve typed columns; each batch holds 80 % updates of uniformly drawn rows, the worst case for a table
whose files are rewritten, 10 % inserts and 10 % deletes. Prints one JSON object per table size: seconds,
and behind them the seconds of processor time, which a busy machine does not stretch as much.

``growth`` applies batches to one table of each size in turn, and prints a result per kind of batch, each size
a side of it: that mix; the same of the newest tenth of the rows, as most tables change; and new rows only.
"""

from __future__ import annotations

import json
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from headrace.model.change import Change, Op, Origin
from headrace.model.key import Key
from headrace.model.position import Position
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.delta import DeltaSink
from tests.bench.results import Result, Side

_L = LogicalType
_COLUMNS = (
    Column("id", _L.INT64, nullable=False),
    Column("customer", _L.INT32),
    Column("status", _L.ENUM),
    Column("amount", _L.NUMERIC, precision=12, scale=2),
    Column("created", _L.TIMESTAMPTZ),
    Column("local", _L.TIMESTAMP),
    Column("note", _L.TEXT),
    Column("flag", _L.BOOLEAN),
    Column("share", _L.FLOAT64),
    Column("doc", _L.JSON),
    Column("ref", _L.UUID),
    Column("day", _L.DATE),
)
_BATCHES = (50, 2_000, 10_000)
_REPEAT = 5
_TABLES = 6


def schema_of(number: int) -> TableSchema:
    return TableSchema(TableId("bench", f"t{number}"), _COLUMNS, ("id",))


class Stream:
    """Changes of one table with offsets that rise."""

    def __init__(self, schema: TableSchema, rows: int) -> None:
        self.schema = schema
        self.rows = rows
        self.offset = 0
        self.next_id = rows
        self.random = random.Random(schema.table.name)

    def _change(self, number: int, op: Op) -> Change:
        self.offset += 1
        n = self.offset
        row: dict[str, Any] = {}
        if op is Op.UPSERT:
            row = {
                "id": number,
                "customer": n % 5000,
                "status": ("new", "paid", "sent", "done")[n % 4],
                "amount": f"{n % 99999}.{n % 100:02d}",
                "created": f"2026-01-{n % 28 + 1:02d}T12:{n % 60:02d}:00.{n % 1_000_000:06d}Z",
                "local": 1_700_000_000_000_000 + n,
                "note": f"note number {n * 7919} with some more text here",
                "flag": n % 2 == 0,
                "share": n / 7,
                "doc": f'{{"a": {n}, "b": "{n * 31:x}", "tags": ["x", "y"]}}',
                "ref": f"{n * 2654435761:032x}",
                "day": 19_000 + n % 1000,
            }
        origin = Origin(f"bench.{self.schema.table}", 0, n, n, n, 1_700_000_000_000)
        return Change(self.schema.table, Key.of([str(number)]), op, row, frozenset(), Position(0, n), origin)

    def load(self, start: int, stop: int) -> list[Change]:
        return [self._change(number, Op.UPSERT) for number in range(start, stop)]

    def batch(self, size: int, among: float = 1.0) -> list[Change]:
        """Return a batch that updates and deletes rows of the newest share ``among`` of those loaded."""
        tenth = size // 10
        oldest = max(0, min(int(self.rows * (1 - among)), self.rows - size))
        known = self.random.sample(range(oldest, self.rows), size - tenth)
        fresh = range(self.next_id, self.next_id + tenth)
        self.next_id += tenth
        return (
            [self._change(number, Op.DELETE) for number in known[:tenth]]
            + [self._change(number, Op.UPSERT) for number in known[tenth:]]
            + [self._change(number, Op.UPSERT) for number in fresh]
        )

    def more(self, size: int) -> list[Change]:
        """Return new rows."""
        self.next_id += size
        return self.load(self.next_id - size, self.next_id)


class _Clock:
    """Medians of wall and processor seconds."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.processor: list[float] = []

    def __enter__(self) -> None:
        self._begin = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall.append(time.perf_counter() - self._begin[0])
        self.processor.append(time.process_time() - self._begin[1])

    @property
    def medians(self) -> list[float]:
        return [round(statistics.median(values), 3) for values in (self.wall, self.processor)]


def measure(rows: int, root: Path, *, vectors: bool) -> dict[str, Any]:
    """Return medians in seconds for one table size, and the peak memory in MiB."""
    sink = DeltaSink("bench", DeltaSink.Config(path=root, deletion_vectors=vectors))
    schemas = [schema_of(number) for number in range(_TABLES)]
    streams = [Stream(schema, rows) for schema in schemas]
    result: dict[str, Any] = {"rows": rows, "vectors": vectors}
    clock = _Clock()
    for schema, stream in zip(schemas, streams, strict=True):
        sink.prepare(schema)
        for start in range(0, rows, 50_000):
            changes = stream.load(start, min(rows, start + 50_000))
            with clock:
                sink.apply(schema, changes)
    result["load_us_per_row"] = [
        round(sum(values) / rows / _TABLES * 1e6, 2) for values in (clock.wall, clock.processor)
    ]
    for size in _BATCHES:
        clock = _Clock()
        for _ in range(_REPEAT):
            batch = streams[0].batch(size)
            with clock:
                sink.apply(schemas[0], batch)
        result[f"one_{size}"] = clock.medians
    with ThreadPoolExecutor(4) as pool:
        for size in _BATCHES[:2]:
            clock = _Clock()
            for _ in range(3):
                batches = [stream.batch(size) for stream in streams]
                with clock:
                    list(pool.map(sink.apply, schemas, batches))
                    sink.settle({(f"bench.{schema.table}", 0): 1 for schema in schemas})
            result[f"six_{size}"] = clock.medians
    result["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return result


_KINDS: dict[str, Callable[[Stream, int], list[Change]]] = {
    "uniform": lambda stream, size: stream.batch(size),
    "recent": lambda stream, size: stream.batch(size, among=0.1),
    "new": lambda stream, size: stream.more(size),
}


def growth(sizes: Sequence[int], root: Path, *, vectors: bool) -> list[Result]:
    """Return seconds a batch, by table size, kind of batch and its size."""
    tables = []
    for rows in sizes:
        sink = DeltaSink("bench", DeltaSink.Config(path=root / str(rows), deletion_vectors=vectors))
        stream = Stream(schema_of(0), rows)
        sink.prepare(stream.schema)
        for start in range(0, rows, 50_000):
            sink.apply(stream.schema, stream.load(start, min(rows, start + 50_000)))
        tables.append((sink, stream))
    results = []
    for kind, batch in _KINDS.items():
        for size in (_BATCHES[0], _BATCHES[-1]):
            clocks = [_Clock() for _ in tables]
            for _ in range(_REPEAT):
                for (sink, stream), clock in zip(tables, clocks, strict=True):
                    changes = batch(stream, size)
                    with clock:
                        sink.apply(stream.schema, changes)
            sides = {
                f"{rows} rows": Side(
                    tuple(clock.wall), {"sink": statistics.median(clock.processor) / size * 1e6}
                )
                for rows, clock in zip(sizes, clocks, strict=True)
            }
            mode = "vectors" if vectors else "rewriting"
            what = f"A batch of {size} changes ({kind}) into a table that has so many rows."
            results.append(Result(f"apply.delta.growth.{mode}.{kind}.{size}", what, "s", sides))
    return results


def main() -> None:
    """Measure the sizes given, or 10 k, 50 k and 300 k rows; for growth 10 k, 100 k and 1 M."""
    vectors = "--vectors" in sys.argv
    sizes = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    if "growth" in sys.argv:
        with tempfile.TemporaryDirectory(prefix="delta-bench-") as directory:
            for result in growth(sizes or [10_000, 100_000, 1_000_000], Path(directory), vectors=vectors):
                print(json.dumps(result.as_dict()), flush=True)
        return
    for rows in sizes or [10_000, 50_000, 300_000]:
        with tempfile.TemporaryDirectory(prefix="delta-bench-") as directory:
            print(json.dumps(measure(rows, Path(directory), vectors=vectors)), flush=True)


if __name__ == "__main__":
    main()
