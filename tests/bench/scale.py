"""Whether a change costs more in a large table than in a small one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from deltalake import DeltaTable

from headrace.model.change import Change, Op
from sinks.delta import DeltaSink
from sinks.delta.shape import KEY, VERSION
from tests.bench.delta_apply import Stream, schema_of
from tests.bench.meter import Meter, race
from tests.bench.results import Result
from tests.bench.suite import Benchmark, Setting

__all__ = ["BENCHMARKS"]

_SMALL = 10_000
_LARGE = 300_000
_LARGEST = 1_000_000
_CHUNK = 50_000
_BATCH = 2_000


class _Lake:
    """A table of some rows, and the batches that will change it.

    Args:
        number: Of the table.
        rows: How many it holds before the first batch.
        batches: How many there will be.
        folder: Where it lies.
        vectors: Whether replaced rows are hidden by deletion vectors.
    """

    def __init__(self, number: int, rows: int, batches: int, folder: Path, *, vectors: bool) -> None:
        self._schema = schema_of(number)
        config = DeltaSink.Config(path=folder / str(number), deletion_vectors=vectors)
        self._sink = DeltaSink("bench", config)
        self._sink.prepare(self._schema)
        self._versions: dict[str, int] = {}
        stream = Stream(self._schema, rows)
        for start in range(0, rows, _CHUNK):
            self._apply(stream.load(start, min(rows, start + _CHUNK)))
        made = [stream.batch(_BATCH) for _ in range(batches)]
        for batch in made:
            self._expect(batch)
        self._batches = iter(made)

    def _expect(self, changes: list[Change]) -> None:
        for change in changes:
            if change.op is Op.DELETE:
                self._versions.pop(change.key.id, None)
            else:
                self._versions[change.key.id] = change.position.version

    def _apply(self, changes: list[Change]) -> None:
        self._expect(changes)
        self._sink.apply(self._schema, changes)

    def change(self) -> int:
        """Apply the next batch."""
        batch = next(self._batches)
        self._sink.apply(self._schema, batch)
        return len(batch)

    def equal(self) -> bool:
        """Return whether the table holds the rows it should, each in its last version."""
        if self._sink.config.deletion_vectors:  # which Arrow's reader of Delta tables does not know
            return {one.key: one.version for one in self._sink.scan(self._schema)} == self._versions
        path = self._sink.target(self._schema).facts["path"]
        found = DeltaTable(path).to_pyarrow_table(columns=[KEY, VERSION])
        return dict(zip(*(found[name].to_pylist() for name in (KEY, VERSION)), strict=True)) == self._versions


def _measure(setting: Setting) -> Iterator[Result]:
    for vectors in (False, True):
        yield _measured(setting, vectors=vectors)


def _measured(setting: Setting, *, vectors: bool) -> Result:
    large = _LARGEST if setting.full else _LARGE
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        lakes = {
            name: _Lake(number, rows, setting.runs + 1, Path(folder), vectors=vectors)
            for number, (name, rows) in enumerate({"headrace": large, f"{_SMALL:,} rows": _SMALL}.items())
        }
        sides = race({name: lake.change for name, lake in lakes.items()}, setting.runs, Meter({}))
        hidden = "hidden by deletion vectors" if vectors else "replaced with their files"
        return Result(
            "scale.delta.vectors" if vectors else "scale.delta",
            f"batches of changes to a Delta table of {large:,} rows, {hidden}, against one of {_SMALL:,}",
            "changes/s",
            sides,
            equal=all(lake.equal() for lake in lakes.values()),
            versions={"deltalake (Python)": version("deltalake")},
            settings={
                "changes a batch": _BATCH,
                "of them": "80 % updates of rows drawn from the whole table, 10 % inserts, 10 % deletes",
                "rows": large,
            },
        )


BENCHMARKS = (
    Benchmark("scale.delta", "scale", 0.6, False, _measure, ("scale.delta", "scale.delta.vectors")),
)
