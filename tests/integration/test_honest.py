"""The watcher of our own honesty finds each kind of difference under a word that says there is none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from redis import Redis

from headrace.control import sink, source
from headrace.control.context import Context
from headrace.control.lag import LagReport, State, TableLag, measure
from headrace.control.registry import Registry, SinkEntry
from headrace.local.endpoints import Endpoints
from headrace.model.schema import TableId
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client, path
from tests.support import honest
from tests.support.database import Database, fresh_database
from tests.support.honest import Honesty
from tests.support.own_servers import free_port
from tests.support.registered import lonely, register
from tests.support.stack import RunningStack
from tests.support.waiting import settle, until

pytestmark = pytest.mark.stack


@dataclass(frozen=True, slots=True)
class Place:
    """A table of two rows and a lake that has both, of which a word made by hand says that it is in sync."""

    context: Context
    endpoints: Endpoints
    lake: Path

    def watched(self) -> Honesty:
        return Honesty(self.context, self.endpoints)


@pytest.fixture
def place(server: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with fresh_database(server.dsn, "honest") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
        context, lake = lonely(tmp_path), tmp_path / "lake" / "t"
        nowhere = f"http://127.0.0.1:{free_port()}"
        register(context, "honest", database.dsn, TableId("public", "t"))
        write_deltalake(lake, pa.table({"id": pa.array([1, 2], pa.int32())}))
        facts = {
            "honestlake": ("delta", {"path": str(lake)}),
            "honestsearch": ("elasticsearch", {"alias": "t"}),
        }
        for name, (kind, fact) in facts.items():
            known = {"settings": {"url": nowhere}, "tables": {"honest.public.t": fact}, "incomplete": {}}
            with Registry(context.registry).begin() as session:
                session.add(SinkEntry(name=name, kind=kind, source="honest", created_ms=1, **known))
        says = [
            TableLag("honest", "public.t", name, State.STREAMING, "", "", 0, 0.0, 2, 0, 0, 0, 1, 0.0)
            for name in facts
        ]
        monkeypatch.setattr(honest, "measure", lambda *_: LagReport(0, True, (), (), tuple(says)))
        monkeypatch.setattr(honest, "GRACE_S", 1.0)  # with the two seconds of a look
        yield Place(context, Endpoints(database.dsn, "", "", nowhere, "", lake.parent), lake)


def test_a_lake_that_is_gone_under_green_is_found_and_a_server_that_is_down_is_not(place: Place) -> None:
    with place.watched() as watching:
        until(lambda: watching.judged["honestlake"])
        shutil.rmtree(place.lake)
        until(lambda: watching.false, why=lambda: watching.blind)
    assert {line.partition(",")[0] for line in watching.false} == {
        "honestlake public.t was called in sync: nothing can be read: TableNotFoundError"
    }


def test_what_is_wrong_when_a_test_ends_is_found(place: Place) -> None:
    with place.watched() as watching:
        until(lambda: watching.judged["honestlake"])
        assert watching.false == []
        DeltaTable(place.lake).delete("id = 2")
    assert any("2 is missing" in line for line in watching.false), watching.false


@pytest.mark.deep
def test_an_index_that_is_gone_under_green_is_found(
    stack: RunningStack, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = stack.endpoints
    with fresh_database(at.postgres_dsn, "honest") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
        source.add(context, "honest", database.dsn)
        where = {"url": at.elasticsearch_url}
        sink.add(context, "honestsearch", "elasticsearch", settings=where, source="honest")
        client = Client(ElasticsearchSink.Config(url=at.elasticsearch_url))
        try:
            settle(context)
            report = measure(context)
            with Honesty(context, at) as watching:
                until(lambda: watching.judged["honestsearch"])
                monkeypatch.setattr(honest, "measure", lambda *_: report)
                sink.pause(context, "honestsearch")  # else the index is made anew at once
                until(lambda: measure(context).sinks[0].state is State.PAUSED)
                facts = Registry(context.registry).sink("honestsearch").tables["honest.public.t"]
                for name in client.request("GET", path(facts["alias"]), None).json():
                    client.request("DELETE", path(name), None)
                until(lambda: watching.false, why=lambda: watching.blind)
            assert "nothing can be read: NotFoundError" in watching.false[0]
        finally:
            client.close()
            sink.remove(context, "honestsearch", purge=True)
            source.remove(context, "honest")


@pytest.mark.deep
def test_what_is_green_and_wrong_is_found(
    stack: RunningStack, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = stack.endpoints
    with fresh_database(at.postgres_dsn, "honest") as database, Redis.from_url(at.redis_url) as cache:
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY, name text)",
            "INSERT INTO t SELECT i, 'n' || i FROM generate_series(1, 9) i",
        )
        source.add(context, "honest", database.dsn)
        sink.add(context, "honestcache", "redis", settings={"url": at.redis_url}, source="honest")
        try:
            settle(context)
            with Honesty(context, at) as hindered, monkeypatch.context() as broken:
                broken.setattr(honest, "open_stores", lambda *_, **__: [])
                until(lambda: hindered.blind, why=lambda: f"{hindered.looks} {hindered.due}")
                assert not hindered.judged
            report = measure(context)
            with Honesty(context, at) as watching:
                until(lambda: watching.judged["honestcache"] > 2)
                assert watching.false == []
                monkeypatch.setattr(honest, "measure", lambda *_: report)
                sink.pause(context, "honestcache")  # else the first difference is healed at once
                until(lambda: measure(context).sinks[0].state is State.PAUSED)
                cache.delete("honest:t:1")
                cache.set("honest:t:2", json.dumps({"id": 2, "name": "another"}))
                cache.set("honest:t:77", json.dumps({"id": 77, "name": "never there"}))
                for said in ("1 is missing", "2 has another ('name',)", "honest:t:77 is not to be there"):
                    until(lambda: said in "".join(watching.false), why=lambda: str(watching.false))  # noqa: B023
        finally:
            cache.delete("honest:t:2", "honest:t:77")  # a purge leaves what is not ours
            sink.remove(context, "honestcache", purge=True)
            source.remove(context, "honest")
