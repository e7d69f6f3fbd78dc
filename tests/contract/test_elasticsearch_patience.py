"""What a real Elasticsearch answers when it is full or overloaded, or when it dies.

Each answer is told by its own name. Nothing that was refused counts as done, or as the fault of a row. The
same calls succeed when it is over.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pytest

from headrace.local import elasticsearch
from headrace.model.change import Change
from headrace.model.errors import Retry, SinkError, SinkUnavailable
from headrace.model.outcome import APPLIED, Deferred
from headrace.observe import pidfile
from sinks.contract.story import ORDERS, at, delete, expected, order, state
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import path
from sinks.elasticsearch.names import tombstones_of
from tests.support.search import Server, search_server
from tests.support.stack import RunningStack, running_stack
from tests.support.waiting import elapse, until

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(500)]

_SMALL = """\
# One request at a time and one more that waits; the others are refused.
thread_pool.write.size: 1
thread_pool.write.queue_size: 1
indexing_pressure.memory.limit: 200kb
"""
PLACE = ("shop.public.orders", 0)
_PLACING = "cluster.routing.allocation"
_DISK = f"{_PLACING}.disk"


@pytest.fixture(scope="module")
def small() -> Iterator[RunningStack]:
    """Yield an Elasticsearch of its own, for its settings hurt everybody."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elasticsearch, "_SETTINGS", elasticsearch._SETTINGS + _SMALL)
        with running_stack(only={"elasticsearch"}) as running:
            yield running


@pytest.fixture
def server(small: RunningStack) -> Iterator[Server]:
    with search_server(small) as opened:
        yield opened


class Told:
    """A sink with three rows, and what it says to every kind of call."""

    def __init__(self, server: Server, **settings: Any) -> None:
        self.server = server
        self.kept = [order(n, at(n)) for n in (1, 2, 3)]
        with closing(server.sink()) as first:
            first.prepare(ORDERS)
            assert first.apply(ORDERS, self.kept) == [APPLIED] * 3
            first.settle({PLACE: 10})
        self.sink = server.sink(**settings)
        self.next = 100

    def writes(self) -> dict[str, Callable[[], object]]:
        """Return what the engine does to a store when it brings it forward."""
        self.next += 10
        upserts = [order(n, at(self.next), note=f"at {self.next}") for n in (2, 4)]
        self.kept = [order(1, at(1)), *upserts]
        return {
            "upsert": lambda: self.sink.apply(ORDERS, upserts),
            "delete": lambda: self.sink.apply(ORDERS, [delete(ORDERS, 3, at(self.next + 1))]),
            "settle": lambda: self.sink.settle({PLACE: self.next}),
            "truncate": lambda: self.sink.truncate(ORDERS, at(2)),
        }

    def refused(self, code: str, calls: dict[str, Callable[[], object]]) -> None:
        """See that each call says why it is not done, and that waiting is the cure."""
        for name, call in calls.items():
            with pytest.raises(SinkUnavailable) as caught:
                call()
            assert (name, caught.value.code) == (name, code), caught.value
            assert caught.value.retry is Retry.LATER
            assert caught.value.hint, name
            assert "(503):" not in caught.value.message, "the reason is missing"

    def goes_on(self, calls: dict[str, Callable[[], object]]) -> None:
        """See that the same calls are done now, with nothing refused for good."""
        for name, call in calls.items():
            until(partial(_done, name, call))
        assert self.sink.progress() == {PLACE: self.next}
        found = state(self.sink, ORDERS)
        # The truncate took what was older than row 2's first version.
        assert found == expected(ORDERS, [one for one in self.kept if one.position.offset >= 2])


def _done(name: str, call: Callable[[], object]) -> bool:
    try:
        outcome = call()
    except SinkUnavailable:
        return False
    if name in ("upsert", "delete"):
        assert isinstance(outcome, list)
        assert {type(one) for one in outcome} <= {type(APPLIED), Deferred}, outcome
        return all(one == APPLIED for one in outcome)
    return True


@pytest.fixture
def told(server: Server) -> Iterator[Told]:
    made = Told(server, timeout=8)
    yield made
    made.sink.close()


@contextmanager
def cluster(server: Server, settings: Mapping[str, str | bool]) -> Iterator[None]:
    """Change settings of the cluster for a while."""
    server.ask("PUT", "/_cluster/settings", {"persistent": settings})
    try:
        yield
    finally:
        server.ask("PUT", "/_cluster/settings", {"persistent": dict.fromkeys(settings)})


def blocks(server: Server) -> set[str]:
    found = server.ask(
        "GET", f"/{server.prefix}*/_settings/index.blocks.*?expand_wildcards=all&flat_settings=true"
    )
    return {name for name, told in found.items() if told["settings"]}


def test_a_disk_that_passes_its_flood_stage(server: Server, told: Told) -> None:
    """Elasticsearch itself blocks the indexes and lifts the block; nobody sets it."""
    # A tombstone that is due: to tidy it up is refused, too, and is given up until the next time.
    due = {"keys": ["9"], "versions": [9], "version": 9, "partition": 0, "at": 0}
    server.ask("PUT", path(tombstones_of(server.alias()), "_doc", "old") + "?refresh=true", due)
    calls = told.writes()
    marks = {f"{_DISK}.watermark.{name}": "1000tb" for name in ("low", "high", "flood_stage")}
    flood: dict[str, str | bool] = {
        f"{_DISK}.threshold_enabled": True,
        "cluster.info.update.interval": "10s",
        **marks,
    }
    with cluster(server, flood):
        until(lambda: len(blocks(server)) >= 3)  # rows, tombstones, progress
        told.refused("ES_BLOCKED", calls)
        told.sink.prepare(ORDERS)
        assert not told.sink.maintain(5)
        assert told.sink.progress() == {PLACE: 10}
        with pytest.raises(SinkUnavailable, match="flood-stage") as caught:
            told.sink.apply(ORDERS, [order(5, at(5))])
        assert "Free disk space" in caught.value.hint
        assert caught.value.table == ORDERS.table
    with cluster(server, {"cluster.info.update.interval": "10s"}):
        until(lambda: not blocks(server))
    told.goes_on(calls)


def test_a_cluster_that_is_set_to_read_only(server: Server, told: Told) -> None:
    calls = told.writes()
    with cluster(server, {"cluster.blocks.read_only_allow_delete": True}):
        told.refused("ES_BLOCKED", calls)
        with pytest.raises(SinkUnavailable) as caught:
            told.sink.settle({PLACE: 11})
        assert "cluster.blocks" in caught.value.hint
    told.goes_on(calls)


@pytest.mark.parametrize(
    "limit",
    [
        "indices.breaker.total.limit",
        "indices.breaker.request.limit",
    ],
)
def test_a_breaker_that_trips(server: Server, told: Told, limit: str) -> None:
    """The memory for all requests together, and for what a search collects (429)."""
    calls = told.writes()
    rows = [order(n, at(told.next), note="x" * 1_000) for n in (2, 4)]
    calls["upsert"] = lambda: told.sink.apply(ORDERS, rows)
    told.kept = [told.kept[0], *rows]
    reads: dict[str, Callable[[], object]] = {
        "progress": told.sink.progress,
        "scan": lambda: list(told.sink.scan(ORDERS)),
        "truncate": calls["truncate"],
    }
    elapse(5)  # so long it trusts what it knows of tombstones, and asks nobody
    with cluster(server, {limit: "50b"}):
        told.refused("ES_BUSY", reads)
        if limit != "indices.breaker.request.limit":  # writes collect nothing
            with pytest.raises(SinkUnavailable, match="Data too large"):
                calls["upsert"]()
    told.goes_on(calls)


def test_more_writes_than_its_queue_takes(server: Server, told: Told) -> None:
    """Requests beyond the queue, and beyond the memory for indexing (429 es_rejected_execution_exception)."""
    batches = [
        [order(n, at(n), note="x" * 3_000) for n in range(at_, at_ + 25)] for at_ in range(1000, 2000, 25)
    ]
    seen: list[str] = []

    def write(sink: ElasticsearchSink, changes: list[Change]) -> None:
        waiting = changes
        while waiting:
            try:
                outcomes = sink.apply(ORDERS, waiting)
            except SinkUnavailable as error:
                seen.append(error.code)
                elapse(0.02)
                continue
            assert {type(one) for one in outcomes} <= {type(APPLIED), Deferred}, outcomes
            seen.extend("deferred" for one in outcomes if one != APPLIED)
            waiting = [one for one, fared in zip(waiting, outcomes, strict=True) if fared != APPLIED]

    sinks = [server.sink() for _ in range(8)]
    try:
        with ThreadPoolExecutor(8) as pool:
            for number, batch in enumerate(batches):
                pool.submit(write, sinks[number % 8], batch).add_done_callback(lambda done: done.result())
    finally:
        for sink in sinks:
            sink.close()
    assert seen, "it took everything at once"
    assert set(seen) <= {"ES_BUSY", "deferred"}
    wanted = [*told.kept, *(one for batch in batches for one in batch)]
    assert state(told.sink, ORDERS) == expected(ORDERS, wanted)


def test_a_node_that_dies_and_comes_back(small: RunningStack, server: Server, told: Told) -> None:
    """From kill -9 to its first green second, it is asked without a pause.

    What it tells of itself meanwhile is what was true: a store that seems empty would be filled anew.
    """
    identities = told.sink.identities([ORDERS])
    assert identities
    calls = told.writes()
    answers: list[object] = []
    calls["progress"] = lambda: answers.append(told.sink.progress([PLACE]))
    calls["identities"] = lambda: answers.append(told.sink.identities([ORDERS]))
    pid = pidfile.alive(small.home.pidfile("elasticsearch"))
    assert pid is not None
    seen: list[SinkError] = []
    os.kill(pid, signal.SIGKILL)
    with ThreadPoolExecutor(1) as pool:
        back = pool.submit(small.stack.up, only={"elasticsearch"})
        while not back.done():
            for call in calls.values():
                try:
                    call()
                except SinkError as error:
                    seen.append(error)
        back.result()
    assert {type(error) for error in seen} == {SinkUnavailable}, seen
    assert {error.code for error in seen} <= {"ES_UNREACHABLE", "ES_BUSY", "ES_SHARD_UNAVAILABLE"}
    told.goes_on(calls)
    assert all(one in ({PLACE: 10}, {PLACE: told.next}, identities) for one in answers), answers
