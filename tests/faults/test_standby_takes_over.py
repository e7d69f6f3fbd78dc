"""A primary dies and its standby takes over with the slot: nothing is lost, and nothing said without need."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from redis import Redis

from headrace.config.source import SourceSettings
from headrace.control import lag, recover, sink, source
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.entries import SourceEntry
from headrace.control.registry import Registry
from headrace.control.runner import ensure_engine, stop_engine
from headrace.model.errors import SourceError
from tests.support.database import Database
from tests.support.stack import RunningStack
from tests.support.standby import pair
from tests.support.waiting import settle, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "failover"


@pytest.mark.unlooked
def test_a_standby_with_the_slot_takes_over_under_writers_without_a_word(
    context: Context, stack: RunningStack
) -> None:
    """Nobody looks meanwhile: had the connector read on by itself, nothing could be proven any more.

    Nobody has looked since the load, either. Then a look dies right after it has let the connector through,
    and a command that was interrupted puts the connector's former configuration back.
    """
    with pair() as servers, Redis.from_url(stack.endpoints.redis_url) as cache:
        Database(servers.dsn).run("CREATE DATABASE shop")
        database = Database(servers.dsn.removesuffix("postgres") + "shop")
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        source.add(context, NAME, database.dsn, settings=SourceSettings(heartbeat_ms=300))
        sink.add(context, "failovercache", "redis", settings=_url(stack), source=NAME)
        over, written = threading.Event(), [0]

        def write() -> None:
            while not over.wait(0.01):
                try:
                    database.run(f"INSERT INTO t VALUES ({written[0]})")
                except psycopg.errors.UniqueViolation:
                    pass  # its answer was lost
                except psycopg.Error:
                    continue
                written[0] += 1

        def stored() -> set[int]:
            keys: Any = cache.scan_iter(f"{NAME}:t:*", count=1000)
            return {int(key.rpartition(b":")[2]) for key in keys}

        thread = threading.Thread(target=write)
        try:
            until(lambda: servers.keeps(f"headrace_{NAME}"))
            thread.start()
            until(lambda: len(stored()) > 200)
            refused = _refused(stack)
            stop_engine(context.run)
            _change(context, loaded_ms=None, heard=None)
            with Connect(context.connect_url) as connect:
                former = connect.config(f"headrace_{NAME}")
            servers.fail_over()
            before = written[0]
            until(lambda: written[0] > before + 200)
            until(lambda: _refused(stack) > refused)
            over.set()
            thread.join()
            ensure_engine(context)
            settle(context)
            rows = {row[0] for row in database.run("SELECT id FROM t")}
            assert len(rows) > 400
            assert stored() == rows
            assert (_seen(context).state, _seen(context).remedy) == (lag.State.STREAMING, "")

            _change(context, timeline=1)
            until(lambda: Registry(context.registry).source(NAME).timeline == 2)
            with Connect(context.connect_url) as connect:
                connect.reconfigure(f"headrace_{NAME}", former)
            database.run("INSERT INTO t VALUES (-1)")
            settle(context)
            assert -1 in stored()
            assert (_seen(context).state, _seen(context).remedy) == (lag.State.STREAMING, "")
        finally:
            over.set()
            ensure_engine(context)
            sink.remove(context, "failovercache", purge=True)
            source.remove(context, NAME)


def test_one_that_takes_over_while_the_tables_are_first_read_is_told(
    context: Context, stack: RunningStack
) -> None:
    """What was read of the former server may not be there any more, and no later change would say so."""
    with pair() as servers, Redis.from_url(stack.endpoints.redis_url) as cache:
        Database(servers.dsn).run("CREATE DATABASE shop")
        database = Database(servers.dsn.removesuffix("postgres") + "shop")
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        try:
            with suppress(psycopg.OperationalError), psycopg.connect(database.dsn) as waited_for:
                waited_for.execute("SELECT pg_current_xact_id()")  # no slot is made before its end
                source.add(context, NAME, database.dsn, settings=SourceSettings(heartbeat_ms=300), wait=False)
                sink.add(context, "failovercache", "redis", settings=_url(stack), source=NAME)
                servers.fail_over()
            until(lambda: _seen(context).state is lag.State.RESYNC_REQUIRED)
            assert "first read" in _seen(context).reason
            assert _seen(context).remedy == f"headrace recover {NAME}"
            recover.recover(context, NAME)
            settle(context)
            assert cache.exists(f"{NAME}:t:1")
        finally:
            sink.remove(context, "failovercache", purge=True)
            source.remove(context, NAME)


def test_one_that_takes_over_while_a_recovery_reads(context: Context, stack: RunningStack) -> None:
    """The recovery was of the former server: the command that goes on with it begins anew."""
    with pair() as servers, Redis.from_url(stack.endpoints.redis_url) as cache:
        Database(servers.dsn).run("CREATE DATABASE shop")
        database = Database(servers.dsn.removesuffix("postgres") + "shop")
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        source.add(context, NAME, database.dsn, settings=SourceSettings(heartbeat_ms=300))
        sink.add(context, "failovercache", "redis", settings=_url(stack), source=NAME)
        try:
            with ThreadPoolExecutor(1) as aside:
                with suppress(psycopg.OperationalError), psycopg.connect(database.dsn) as waited_for:
                    waited_for.execute("SELECT pg_current_xact_id()")  # no slot is made before its end
                    first = aside.submit(recover.recover, context, NAME)
                    until(lambda: first.done() or recover.plan(context, NAME).unfinished == "reading")
                    servers.fail_over()
                with pytest.raises(SourceError):  # whatever is noticed first
                    first.result()
            database.run("INSERT INTO t VALUES (2)")
            recover.recover(context, NAME)
            settle(context)
            assert sorted(cache.scan_iter(f"{NAME}:t:*")) == [f"{NAME}:t:{n}".encode() for n in (1, 2)]
        finally:
            sink.remove(context, "failovercache", purge=True)
            source.remove(context, NAME)


def _change(context: Context, **values: int | None) -> None:
    """Put the registry's entry back to what it was before somebody looked."""
    with Registry(context.registry).begin() as session:
        for name, value in values.items():
            setattr(session.get_one(SourceEntry, NAME), name, value)


def _url(stack: RunningStack) -> dict[str, str]:
    return {"url": stack.endpoints.redis_url}


def _seen(context: Context) -> lag.SourceLag:
    (seen,) = [found for found in lag.measure(context).sources if found.source == NAME]
    return seen


def _refused(stack: RunningStack) -> int:
    """Return how often the connector was not let through to the new server."""
    return stack.home.log("connect").read_text(errors="replace").count("has not looked at this server yet")
