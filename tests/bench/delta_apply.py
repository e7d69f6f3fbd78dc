"""How long the lake sink takes to apply changes to tables of different sizes.

    python -m tests.bench.delta_apply [--vectors] [rows …]

Twelve typed columns; each batch holds 80 % updates of uniformly drawn rows, the worst case for a table
whose files are rewritten, 10 % inserts and 10 % deletes. Prints one JSON object per table size: seconds,
and behind them the seconds of processor time, which a busy machine does not stretch as much.
"""

from __future__ import annotations

import json
import random
import resource
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from headrace.model.change import Change, Op, Origin
from headrace.model.key import Key
from headrace.model.position import Position
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.delta import DeltaSink

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


def _schema(number: int) -> TableSchema:
    return TableSchema(TableId("bench", f"t{number}"), _COLUMNS, ("id",))


class _Stream:
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

    def batch(self, size: int) -> list[Change]:
        tenth = size // 10
        known = self.random.sample(range(self.rows), size - tenth)
        fresh = range(self.next_id, self.next_id + tenth)
        self.next_id += tenth
        return (
            [self._change(number, Op.DELETE) for number in known[:tenth]]
            + [self._change(number, Op.UPSERT) for number in known[tenth:]]
            + [self._change(number, Op.UPSERT) for number in fresh]
        )


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
    schemas = [_schema(number) for number in range(_TABLES)]
    streams = [_Stream(schema, rows) for schema in schemas]
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


def main() -> None:
    """Measure the sizes given, or 10 k, 50 k and 300 k rows."""
    vectors = "--vectors" in sys.argv
    sizes = [int(argument) for argument in sys.argv[1:] if not argument.startswith("--")]
    for rows in sizes or [10_000, 50_000, 300_000]:
        with tempfile.TemporaryDirectory(prefix="delta-bench-") as directory:
            print(json.dumps(measure(rows, Path(directory), vectors=vectors)), flush=True)


if __name__ == "__main__":
    main()
