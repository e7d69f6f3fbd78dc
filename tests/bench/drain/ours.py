"""Our own side of a drain: sinks added to a backlog, timed until everything is applied, compared, removed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.control import sink as control_sink
from headrace.control.progress import SinkProgress, read_progress
from headrace.control.registry import Registry
from headrace.demo.pipeline import open_stores
from tests.bench.drain.backlog import Backlog
from tests.bench.drain.meter import Meter

__all__ = ["KINDS", "Drained", "differences", "drain", "sinks_on", "wait_applied"]

KINDS = ("elasticsearch", "redis", "delta")

_POLL_S = 0.03
_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Drained:
    """One drain.

    Args:
        seconds: Sink kind → from the moment the engine could know of it until all was applied; the moment
            is that of the first sink, if there are several.
        meter: What was spent from that moment until the last sink was done.
        wrong: What was not as it should be: rows that differ, changes that were not applied.
    """

    seconds: dict[str, float]
    meter: Meter
    wrong: tuple[str, ...]

    @property
    def slowest(self) -> float:
        """Return how long all of it took."""
        return max(self.seconds.values())


def _settings(kind: str, backlog: Backlog) -> dict[str, Any]:
    endpoints = backlog.running.endpoints
    if kind == "elasticsearch":
        return {"url": endpoints.elasticsearch_url}
    if kind == "redis":
        return {"url": endpoints.redis_url, "format": "json"}
    return {"path": str(Path(endpoints.lake_path) / backlog.name)}


@contextmanager
def sinks_on(backlog: Backlog, kinds: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield new sinks of these kinds, added at the same moment, as name → kind; purge them at the end."""
    sinks = {f"{backlog.name}_{kind}": kind for kind in kinds}

    def add(name: str) -> None:
        kind = sinks[name]
        settings = _settings(kind, backlog)
        control_sink.add(
            backlog.context,
            name,
            kind,
            settings=settings,
            source=backlog.name,
            wait=False,
            say=lambda _: None,
        )

    try:
        with ThreadPoolExecutor(len(sinks)) as pool:
            for job in [pool.submit(add, name) for name in sinks]:
                job.result()
        yield sinks
    finally:
        registered = {entry.name for entry in Registry(backlog.context.registry).sinks(backlog.name)}
        for name in registered & sinks.keys():
            control_sink.remove(backlog.context, name, purge=True)


def drain(backlog: Backlog, kinds: Sequence[str]) -> Drained:
    """Apply the whole backlog to fresh targets of these kinds, all at once, and compare what they hold."""
    with sinks_on(backlog, kinds) as sinks:
        with Meter(backlog.running.home.run) as meter:
            began = min((backlog.context.pipelines / f"{name}.json").stat().st_mtime for name in sinks)
            done = wait_applied(backlog, sinks)
        wrong = tuple(_wrong(backlog, sinks, done))
    seconds = {kind: done[name].updated_ms / 1000 - began for name, kind in sinks.items()}
    return Drained(seconds, meter, wrong)


def wait_applied(backlog: Backlog, names: Iterable[str]) -> dict[str, SinkProgress]:
    """Return what each sink said when it had settled everything."""
    done: dict[str, SinkProgress] = {}
    waiting = set(names)
    deadline = time.monotonic() + _PATIENCE_S
    while waiting:
        for name in list(waiting):
            progress = read_progress(backlog.context.progress, name)
            if progress is None:
                continue
            if progress.state == "failed":
                raise RuntimeError(f"{name} failed: {progress.error}")
            if all(progress.next_offsets.get(place, 0) >= end for place, end in backlog.ends.items()):
                done[name] = progress
                waiting.discard(name)
        if time.monotonic() > deadline:
            raise TimeoutError(f"not drained after {_PATIENCE_S:.0f} s: {waiting}")
        time.sleep(_POLL_S)
    return done


def _wrong(backlog: Backlog, sinks: Mapping[str, str], done: Mapping[str, SinkProgress]) -> Iterator[str]:
    for name, progress in done.items():
        applied = sum(table.applied for table in progress.tables.values())
        if applied != backlog.changes:
            yield f"{name} applied {applied:,} of {backlog.changes:,} changes"
    yield from differences(backlog, sinks)


def differences(backlog: Backlog, sinks: Mapping[str, str]) -> Iterator[str]:
    """Yield how what the sinks hold differs from Postgres, by content, in both directions."""
    endpoints = backlog.running.endpoints
    for store in open_stores(backlog.context, endpoints, source=backlog.name, sinks=sinks):
        try:
            yield from (str(comparison.as_dict()) for comparison in backlog.differences(store))
        finally:
            store.close()
