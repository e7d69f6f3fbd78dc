"""Conducts a run: one benchmark after the other, each result written down as soon as it is there."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.host import ROOT, load
from tests.bench.journal import Entry, Run, now
from tests.bench.results import Result
from tests.bench.suite import Benchmark, Setting

__all__ = ["Conductor"]

_TRACE = 3


@dataclass
class Conductor:
    """Measures and tells.

    Args:
        run: What is told of each result besides itself.
        setting: What the benchmarks are told.
        keep: Takes each entry as soon as it is there.
        failed: Names of results that do not count.
    """

    run: Run
    setting: Setting
    keep: Callable[[Entry], None]
    failed: list[str] = field(default_factory=list)

    def conduct(self, benchmarks: Iterable[Benchmark]) -> bool:
        """Measure all of them, whatever becomes of the others; return whether every result counts.

        A benchmark that raises, or that ends without all it promised, has failed; the others go on.
        """
        for benchmark in benchmarks:
            self._one(benchmark)
        return not self.failed

    def _one(self, benchmark: Benchmark) -> None:
        self.setting.say(f"{benchmark.name}: about {benchmark.minutes:g} min")
        missing = dict.fromkeys(benchmark.results)
        began, before = time.monotonic(), load()
        for result in self._results(benchmark, missing):
            missing.pop(result.name, None)
            after = load()
            seconds = round(time.monotonic() - began, 1)
            self.keep(
                Entry(self.run, benchmark.name, benchmark.group, now(), seconds, (before, after), result)
            )
            if not result.counts:
                self.failed.append(result.name)
            began, before = time.monotonic(), after

    def _results(self, benchmark: Benchmark, missing: dict[str, None]) -> Iterator[Result]:
        why = "it ended without this result"
        try:
            yield from benchmark.run(self.setting)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are measured, and the page tells
            self.setting.say("".join(traceback.format_exception(error)[-_TRACE:]).rstrip())
            # Published with the figures: where this machine keeps its files is nobody's business.
            said = f"{type(error).__name__}: {error}".replace(str(ROOT), ".").replace(str(Path.home()), "~")
            why = said.splitlines()[0][:300]
            if not missing:
                # All it promised had come; that it did not end well must not be lost.
                missing[benchmark.name] = None
        for name in list(missing):
            yield Result(name, "", "", failure=why)
