"""How long a store takes to remove rows that a resnapshot has not seen, against writing as many."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, count

from msgspec import structs

from headrace.model.change import Change
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema
from sinks.base import Sink
from tests.bench.apply.products import SCHEMA, batches
from tests.bench.meter import Meter, race
from tests.bench.opened import opened
from tests.bench.results import Result
from tests.bench.suite import Benchmark, Setting

__all__ = ["BENCHMARKS"]

_KINDS = ("elasticsearch", "redis", "delta")
_ROWS = 100_000
_STAY = 10
"""Of so many rows one was seen, and stays."""


class _Table:
    """One table of a sink, written and swept in turn.

    Args:
        sink: The sink.
        schema: The table.
        changes: Its rows.
    """

    def __init__(self, sink: Sink, schema: TableSchema, changes: list[Change]) -> None:
        self._sink = sink
        self._schema = schema
        self._changes = changes
        self._offset = 0
        sink.prepare(schema)

    def write(self) -> int:
        """Write all rows; return the mark below which they are."""
        self._apply(self._changes)
        return self._offset

    def see_some(self) -> None:
        """Write those anew that stay; harmless to repeat."""
        self._apply(self._changes[::_STAY])

    def _apply(self, changes: list[Change]) -> None:
        for start in range(0, len(changes), self._sink.rows_at_once):
            part = [
                structs.replace(change, table=self._schema.table, position=Position(0, self._offset + number))
                for number, change in enumerate(changes[start : start + self._sink.rows_at_once], start)
            ]
            self._sink.apply(self._schema, part)
        self._offset += len(changes)

    def sweep(self, mark: int) -> int:
        """Remove what is older; return how many rows that were."""
        at = Position(0, mark)
        older = self._sink.count(self._schema, at)
        assert older == self._sink.truncate(self._schema, at)
        return older

    def is_swept(self) -> bool:
        """Return whether only those are left that were seen."""
        wanted = {change.key.id for change in self._changes[::_STAY]}
        return {stored.key for stored in self._sink.scan(self._schema)} == wanted


def _measure(kind: str, setting: Setting) -> Iterator[Result]:
    changes = list(chain.from_iterable(batches(_ROWS)["insert"]))
    with opened(kind) as store:
        sink = store.sink
        waiting: deque[tuple[_Table, int]] = deque()
        swept: list[_Table] = []
        numbers = count()

        def write() -> int:
            table = _Table(sink, replace(SCHEMA, table=TableId("public", f"swept_{next(numbers)}")), changes)
            waiting.append((table, table.write()))
            return len(changes)

        def sweep() -> int:
            table, mark = waiting.popleft()
            swept.append(table)
            return table.sweep(mark)

        def see_some() -> None:
            if waiting:  # else the last one that was written is swept already
                waiting[-1][0].see_some()

        write()  # whoever is second in a round is first in the next, and needs one to sweep
        see_some()
        sides = race(
            {"writing": write, "headrace": sweep}, setting.runs, Meter(store.processes), between=see_some
        )
        equal = all(table.is_swept() for table in swept)
    yield Result(
        f"sweep.{kind}",
        f"nine of ten of {_ROWS:,} rows in {kind} are counted and removed, against writing them",
        "rows/s",
        sides,
        equal=equal,
        versions=store.versions,
        settings={"rows": _ROWS},
    )


BENCHMARKS = tuple(
    Benchmark(f"sweep.{kind}", "resnapshot", 1.5, headline=False, run=partial(_measure, kind))
    for kind in _KINDS
)
