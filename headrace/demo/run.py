"""The demo from beginning to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console

from headrace.control.context import Context
from headrace.demo.boot import Boot, Booted
from headrace.demo.cleanup import Cleanup
from headrace.demo.interrupt import Interruption
from headrace.demo.lookout import Lookout, behind, filled, shows_all_since
from headrace.demo.memory import MemoryWatch
from headrace.demo.original import Original
from headrace.demo.ownership import only_demo
from headrace.demo.pipeline import open_stores, register
from headrace.demo.probe import MARKED, FirstRows, Markers
from headrace.demo.show import Show
from headrace.demo.stock import TABLES, Sizes
from headrace.demo.stores.base import Store
from headrace.demo.verdict import Verdict, compare_all, print_comparisons
from headrace.demo.workload import Workload
from headrace.local.account import unprivileged
from headrace.local.endpoints import Endpoints
from headrace.local.stack import Stack
from headrace.model.errors import StackError, is_interruption

__all__ = ["Demo", "Options"]

_LOAD_S = 300.0
_DRAIN_S = 120.0
_ASK_EVERY_S = {"search": 0.025, "cache": 0.01, "lake": 0.1}


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
        interruption: How it is asked to end early.
    """

    def __init__(
        self,
        stack: Stack,
        context_of: Callable[[Endpoints], Context],
        options: Options,
        console: Console,
        interruption: Interruption,
    ) -> None:
        self._stack = stack
        self._context_of = context_of
        self._options = options
        self._console = console
        self._interruption = interruption
        self._began = time.monotonic()
        self.booted: Booted | None = None

    def run(self) -> Verdict:
        """Do it all, and tidy up unless told to keep, also when it fails or is interrupted.

        Raises:
            HeadraceError: When a part of it cannot work at all; a difference is no error but a verdict.
        """
        home = self._stack.home
        made_home = not home.exists()
        home.create(passable=unprivileged() is not None)
        with only_demo(home.run):
            return self._run(made_home=made_home)

    def _run(self, *, made_home: bool) -> Verdict:
        options = self._options
        sizes = Sizes() if options.scale == 1 else Sizes().scaled(options.scale)
        boot = Boot(self._stack, self._context_of, seed=options.seed, sizes=sizes, say=self._say)
        cleanup = Cleanup(self._stack, boot, self._tell, made_home=made_home)
        memory = MemoryWatch(self._stack.home.run)
        memory.start()
        verdict: Verdict | None = None
        try:
            self.booted = cleanup.booted = booted = boot.run()
            verdict = self._pipeline(booted, sizes)
            verdict.seconds = time.monotonic() - self._began
            verdict.peak_rss_mib = memory.stop()
            verdict.memory_mib = memory.peaks
        except (KeyboardInterrupt, SystemError) as ended:
            if not is_interruption(ended):
                raise
            # Dropped before tidying up: its traceback holds open what was interrupted, such as a
            # connection half made, for whose end Postgres would wait before it removes a database.
            verdict = None
        finally:
            if verdict is None or not options.keep:
                cleanup.run()
        if verdict is None:
            raise KeyboardInterrupt
        return verdict

    def _pipeline(self, booted: Booted, sizes: Sizes) -> Verdict:
        booted.belongings.announce()
        try:
            register(booted.context, booted.dsn, booted.endpoints, self._say)
        finally:
            booted.belongings.note()
        return self._show(booted, sizes)

    def _show(self, booted: Booted, sizes: Sizes) -> Verdict:
        verdict = Verdict()
        with ExitStack() as closing:
            # Markers ask from threads of their own, so with clients of their own.
            stores, askers = (open_stores(booted.context, booted.endpoints) for _ in range(2))
            for store in (*stores, *askers):
                closing.callback(store.close)
            lookout = Lookout(booted.context)
            show = Show(
                self._console,
                began=self._began,
                lookout=lookout,
                dsn=booted.dsn,
                stores=stores,
                tables=TABLES,
            )
            with ExitStack() as showing:
                showing.callback(show.stop)
                show.start()
                self._fill(booted, stores, lookout, show, verdict)
                self._open_shop(booted, askers, sizes, show, verdict)
                self._drain(lookout, show, verdict)
            verdict.comparisons = compare_all(booted.dsn, stores, TABLES)
        print_comparisons(self._console, verdict.comparisons)
        return verdict

    def _fill(
        self, booted: Booted, stores: list[Store], lookout: Lookout, show: Show, verdict: Verdict
    ) -> None:
        """Wait until every store shows the whole seed."""
        show.phase = "the stores are filled from a snapshot"
        with Original.open(booted.dsn) as original:
            samples = [(schema, key) for schema in original.tables() for key in original.first_keys(schema)]
        first_rows = show.first_rows = FirstRows(self._began, stores, samples)
        first_rows.start()
        try:
            loaded = lookout.wait(
                lambda look: self._heard(filled(look) and first_rows.complete),
                timeout=_LOAD_S,
                every=1.0,
                # An engine that is still booting has said nothing either.
                give_up=_LOAD_S / 2,
            )
        finally:
            first_rows.stop()
        if not loaded.done:
            raise StackError(
                f"The stores were not filled after {loaded.seconds:.0f} s: {behind(loaded.report)}",
                code="DEMO_LOAD_SLOW",
                hint="See `headrace status`; a slow machine may need --scale 0.2.",
            )
        verdict.first_rows = {store.name: first_rows.seconds[store.name] for store in stores}

    def _open_shop(
        self, booted: Booted, askers: list[Store], sizes: Sizes, show: Show, verdict: Verdict
    ) -> None:
        """Let people write for the chosen time, and measure meanwhile."""
        show.phase = "people are in the shop"
        options = self._options
        workload = show.workload = Workload(
            booted.dsn,
            rate=options.rate,
            seed=options.seed,
            sizes=sizes,
            bulk_after=min(10.0, options.seconds / 3),
        )
        with Original.open(booted.dsn) as original:
            marked = next(schema for schema in original.tables() if schema.table.name == MARKED)
        markers = show.markers = Markers(
            booted.dsn, marked, {store: _ASK_EVERY_S[store.name] for store in askers}
        )
        workload.start()
        markers.start()
        try:
            deadline = time.monotonic() + options.seconds
            while time.monotonic() < deadline and not workload.failed:
                time.sleep(0.1)
                self._interruption.heed()
        finally:
            show.phase = "the shop is closed, lag falls to zero"
            verdict.tally = workload.stop()
        verdict.latencies = markers.stop(patience=30.0)
        verdict.markers = markers.written

    def _drain(self, lookout: Lookout, show: Show, verdict: Verdict) -> None:
        """Wait until it is proven that every store shows the last write."""
        proven = shows_all_since(time.monotonic())
        last = lookout.wait(lambda look: self._heard(proven(look)), timeout=_DRAIN_S)
        verdict.drained, verdict.behind = last.done, "" if last.done else behind(last.report)
        for sink in last.report.sinks if last.report else ():
            verdict.engine_latency_ms[sink.sink] = dict(sink.latency_ms)
        show.phase = "every row is compared" if last.done else f"lag did not fall to zero: {verdict.behind}"

    def _heard(self, done: bool) -> bool:
        self._interruption.heed()
        return done

    def _say(self, text: str) -> None:
        self._interruption.heed()
        self._tell(text)

    def _tell(self, text: str) -> None:
        took = time.monotonic() - self._began
        self._console.print(f"{took:6.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)
