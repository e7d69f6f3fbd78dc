"""The demo from beginning to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console

from headrace.control.context import Context
from headrace.control.lag import LagReport
from headrace.demo.boot import Boot, Booted
from headrace.demo.cleanup import Cleanup
from headrace.demo.memory import MemoryWatch
from headrace.demo.original import Original
from headrace.demo.pipeline import open_stores, register
from headrace.demo.probe import MARKED, FirstRows, Markers
from headrace.demo.show import Show
from headrace.demo.stock import TABLES, Sizes
from headrace.demo.stores.base import Store
from headrace.demo.verdict import Verdict, compare_all, print_comparisons
from headrace.demo.workload import Workload
from headrace.local.endpoints import Endpoints
from headrace.local.stack import Stack
from headrace.model.errors import StackError

__all__ = ["Demo", "Options"]

_LOAD_S = 300.0
_DRAIN_S = 120.0
_ASK_EVERY_S = {"search": 0.01, "cache": 0.005, "lake": 0.1}


@dataclass(frozen=True, slots=True)
class Options:
    """What can be chosen.

    Args:
        seconds: How long the workload writes.
        rate: Its row changes per second.
        seed: Of the shop and of the workload's choices.
        scale: Size of the shop; 1 is 62,060 rows.
        keep: Leave servers and pipeline running.
    """

    seconds: float = 20.0
    rate: float = 200.0
    seed: int = 1
    scale: float = 1.0
    keep: bool = False


class Demo:
    """Shows the whole chain on real servers and judges it.

    Args:
        stack: The stack to use; what runs of it already is left running.
        context_of: Endpoints → the installation.
        options: What was chosen.
        console: For people.
    """

    def __init__(
        self,
        stack: Stack,
        context_of: Callable[[Endpoints], Context],
        options: Options,
        console: Console,
    ) -> None:
        self._stack = stack
        self._context_of = context_of
        self._options = options
        self._console = console
        self._began = time.monotonic()
        self.booted: Booted | None = None

    def run(self) -> Verdict:
        """Do it all, and tidy up unless told to keep, also when it fails or is interrupted.

        Raises:
            HeadraceError: When a part of it cannot work at all; a difference is no error but a verdict.
        """
        options = self._options
        sizes = Sizes() if options.scale == 1 else Sizes().scaled(options.scale)
        boot = Boot(self._stack, self._context_of, seed=options.seed, sizes=sizes, say=self._say)
        cleanup = Cleanup(self._stack, boot, self._say)
        memory = MemoryWatch(self._stack.home.run)
        memory.start()
        kept = False
        try:
            self.booted = cleanup.booted = booted = boot.run()
            register(booted.context, booted.belongings, booted.dsn, booted.endpoints, self._say)
            with ExitStack() as closing:
                stores = open_stores(booted.context, booted.endpoints)
                for store in stores:
                    closing.callback(store.close)
                verdict = self._watch(booted, stores, sizes)
            verdict.seconds = time.monotonic() - self._began
            verdict.peak_rss_mib = memory.stop()
            verdict.memory_mib = memory.peaks
            kept = options.keep
        finally:
            if not kept:
                cleanup.run()
        return verdict

    def _watch(self, booted: Booted, stores: list[Store], sizes: Sizes) -> Verdict:
        options, verdict = self._options, Verdict()
        with Original.open(booted.dsn) as original:
            schemas = {schema.table.name: schema for schema in original.tables()}
            samples = {name: (schema, original.first_keys(schema)) for name, schema in schemas.items()}
        show = Show(
            self._console,
            began=self._began,
            context=booted.context,
            dsn=booted.dsn,
            stores=stores,
            tables=TABLES,
        )
        first_rows = show.first_rows = FirstRows(self._began, stores, samples)
        workload = Workload(
            booted.dsn,
            rate=options.rate,
            seed=options.seed,
            sizes=sizes,
            bulk_after=min(10.0, options.seconds / 3),
        )
        probes = {store: _ASK_EVERY_S[store.name] for store in open_stores(booted.context, booted.endpoints)}
        markers = Markers(booted.dsn, schemas[MARKED], probes)
        with ExitStack() as ending:
            ending.callback(show.stop)
            for probe in probes:
                ending.callback(probe.close)
            first_rows.start()
            ending.callback(first_rows.stop)
            show.phase = "the stores are filled from a snapshot"
            show.start()
            if not show.wait(lambda report: report.in_sync and first_rows.complete, timeout=_LOAD_S):
                raise StackError(
                    f"The stores were not filled after {_LOAD_S:.0f} s: {behind(show.report)}",
                    code="DEMO_LOAD_SLOW",
                    hint="See `headrace lag` and `headrace status`; a slow machine may need --scale 0.2.",
                )
            verdict.first_rows = dict(first_rows.seconds)
            show.phase = "people are in the shop"
            show.workload, show.markers = workload, markers
            workload.start()
            ending.callback(workload.stop)
            markers.start()
            deadline = time.monotonic() + options.seconds
            while time.monotonic() < deadline and not workload.failed:
                time.sleep(0.1)
            show.phase = "the shop is closed, lag falls to zero"
            verdict.tally = workload.stop()
            verdict.latencies = markers.stop(patience=30.0)
            verdict.markers = markers.written
            closed = time.monotonic()
            verdict.drained = show.wait(
                lambda report: _drained(report, time.monotonic() - closed), timeout=_DRAIN_S
            )
            verdict.behind = "" if verdict.drained else behind(show.report)
            for sink in show.report.sinks if show.report else ():
                verdict.engine_latency_ms[sink.sink] = dict(sink.latency_ms)
            show.phase = "every row is compared" if verdict.drained else f"lag did not fall: {verdict.behind}"
        verdict.comparisons = compare_all(booted.dsn, stores, TABLES)
        print_comparisons(self._console, verdict.comparisons)
        return verdict

    def _say(self, text: str) -> None:
        took = time.monotonic() - self._began
        self._console.print(f"{took:6.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)


def _drained(report: LagReport, closed_for: float) -> bool:
    """Say whether every table of every sink is proven to show a state of after the last write."""
    return report.in_sync and all(
        table.freshness_seconds is not None and table.freshness_seconds < closed_for
        for table in report.tables
    )


def behind(report: LagReport | None) -> str:
    """Return why lag is not zero, in one line: the first reason of every sink that is behind."""
    if report is None:
        return "nothing is known of the pipeline"
    reasons = []
    for sink in report.sinks:
        mine = [table for table in report.tables if table.sink == sink.sink]
        late = [table for table in mine if table.lag_records or table.reason]
        if late:
            first = late[0]
            reason = first.reason or f"{first.lag_records:,} records to apply"
            reasons.append(f"{sink.sink} {first.table} is {first.state.value} ({reason})")
    return "; ".join(reasons) or "no proof yet that the last writes have arrived"
