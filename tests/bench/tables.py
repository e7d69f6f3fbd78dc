"""Whether the same changes cost more when they belong to fifty tables instead of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from msgspec import structs

from headrace.model.change import Change
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema
from sinks.base import Sink
from spark_jobs.apply import apply_records
from spark_jobs.carry import NoCarry
from spark_jobs.held import Holds
from spark_jobs.tables import Tables
from tests.bench.apply.products import SCHEMA, batches
from tests.bench.meter import Meter, race
from tests.bench.opened import opened
from tests.bench.results import Result
from tests.bench.suite import Benchmark, Setting

__all__ = ["BENCHMARKS"]

_KINDS = ("elasticsearch", "redis", "delta")
_MANY = 50
_ROWS = 5_000

_Work = dict[str, tuple[TableSchema, list[Change]]]
"""Table → its changes."""


def _spread(changes: Sequence[Change], tables: int, again: int) -> _Work:
    """Give changes to tables in turn, for the ``again``-th time; each is a product table by another name."""
    work: _Work = {}
    for number in range(tables):
        table = TableId("public", f"of_{tables}_{number}")
        own = [
            structs.replace(
                change, table=table, position=Position(0, change.position.offset + again * len(changes))
            )
            for change in changes[number::tables]
        ]
        work[table.name] = replace(SCHEMA, table=table), own
    return work


def _apply(sink: Sink, work: _Work) -> int:
    tables = Tables({schema.table: schema for schema, _ in work.values()}, {})
    changes = list(chain.from_iterable(changes for _, changes in work.values()))
    report = apply_records(changes, sink, tables, NoCarry(), Holds())
    assert report.error is None, report.error
    assert sum(counters["applied"] for counters in report.tables.values()) == len(changes)
    return len(changes)


def _apply_next(sink: Sink, left: Iterator[_Work]) -> int:
    return _apply(sink, next(left))


def _holds(sink: Sink, work: _Work) -> bool:
    """Return whether every table has its rows, each in the version that was applied, and no other."""
    return all(
        {stored.key: stored.version for stored in sink.scan(schema)}
        == {change.key.id: change.position.version for change in changes}
        for schema, changes in work.values()
    )


def _measure(kind: str, setting: Setting) -> Iterator[Result]:
    changes = list(chain.from_iterable(batches(_ROWS)["insert"]))
    rounds = range(setting.runs + 1)
    works = {
        name: [_spread(changes, tables, again) for again in rounds]
        for name, tables in (("headrace", _MANY), ("one table", 1))
    }
    with opened(kind) as store:
        sink = store.sink
        for schema, _ in chain.from_iterable(first.values() for first, *_ in works.values()):
            sink.prepare(schema)
        # The round that does not count writes new rows, the others change them all.
        left = {name: iter(works[name]) for name in works}
        ways = {name: partial(_apply_next, sink, left[name]) for name in works}
        sides = race(ways, setting.runs, Meter(store.processes))
        equal = all(_holds(sink, last) for *_, last in works.values())
    yield Result(
        f"scale.tables.{kind}",
        f"{_ROWS:,} changes of {_MANY} tables applied to {kind} by the engine, against as many of one",
        "changes/s",
        sides,
        equal=equal,
        versions=store.versions,
        settings={"changes": _ROWS, "tables": _MANY, "changes a table": _ROWS // _MANY},
    )


BENCHMARKS = tuple(
    Benchmark(f"scale.tables.{kind}", "scale", 0.7, headline=False, run=partial(_measure, kind))
    for kind in _KINDS
)
