"""Whether one table's changes are applied faster when its topic has several partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.bench.drain.backlog import backlog
from tests.bench.drain.ours import KINDS, drain
from tests.bench.drain.stand import WARM_UPS, Sampled, bench_stack, settings_of
from tests.bench.drain.versions import stack_versions
from tests.bench.drain.workloads import workload
from tests.bench.results import Result
from tests.bench.suite import Benchmark, Setting

__all__ = ["BENCHMARK"]

_PARTITIONS = 4


def _measure(setting: Setting) -> Iterator[Result]:
    flat = workload("flat", full=False)
    # What several partitions ask for is asked of both sides.
    whole = replace(flat, ddl=f"{flat.ddl}; ALTER TABLE flat REPLICA IDENTITY FULL")
    with (
        bench_stack() as (running, context),
        backlog(running, context, replace(whole, name="spread"), partitions=_PARTITIONS) as many,
        backlog(running, context, replace(whole, name="narrow")) as one,
    ):
        lots = {"headrace": many, "1 partition": one}
        sampled = {kind: {side: Sampled() for side in lots} for kind in KINDS}
        for number in range(-WARM_UPS, setting.runs):
            for kind, sides in sampled.items():
                for side, lot in lots.items():
                    done = drain(lot, [kind])
                    if number >= 0:
                        sides[side].add(done, lot.changes)
    for kind, sides in sampled.items():
        wrong = [found for side in sides.values() for found in side.wrong]
        yield Result(
            f"scale.partitions.{kind}",
            f"a backlog of one table applied by the {kind} sink, {_PARTITIONS} partitions against one",
            "changes/s",
            {name: side.side() for name, side in sides.items()},
            equal=not wrong,
            versions=stack_versions(),
            settings={
                **settings_of(many),
                "partitions_per_topic": _PARTITIONS,
                "replica identity": "FULL, on both sides",
                **({"differences": wrong[:5]} if wrong else {}),
            },
        )


BENCHMARK = Benchmark(
    "scale.partitions",
    "scale",
    4.0,
    headline=False,
    run=_measure,
    promises=tuple(f"scale.partitions.{kind}" for kind in KINDS),
)
