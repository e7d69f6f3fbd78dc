"""The watcher of our own honesty finds each kind of difference under a word that says there is none."""

from __future__ import annotations

import json

import pytest
from redis import Redis

from headrace.control import sink, source
from headrace.control.context import Context
from headrace.control.lag import State, measure
from tests.support import honest
from tests.support.database import fresh_database
from tests.support.honest import Honesty
from tests.support.stack import RunningStack
from tests.support.waiting import settle, until

pytestmark = [pytest.mark.deep, pytest.mark.stack]


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
