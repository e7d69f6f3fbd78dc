"""A primary dies under writers and its standby takes over with the slot: nothing is lost, nothing said."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from redis import Redis

from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from tests.support.database import Database
from tests.support.stack import RunningStack
from tests.support.standby import pair
from tests.support.waiting import settle, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "failover"


def test_a_standby_with_the_slot_takes_over_under_writers_without_a_word(
    context: Context, stack: RunningStack
) -> None:
    """Seen in November 2026: now and then the connector reads on before anybody has looked at the new server.

    Then nothing is lost, but that is not proven, and the status asks for a recovery.
    """
    with pair() as servers, Redis.from_url(stack.endpoints.redis_url) as cache:
        Database(servers.dsn).run("CREATE DATABASE shop")
        database = Database(servers.dsn.removesuffix("postgres") + "shop")
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        source.add(context, NAME, database.dsn, settings=SourceSettings(heartbeat_ms=300))
        sink.add(context, "failovercache", "redis", settings={"url": stack.endpoints.redis_url}, source=NAME)
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
            servers.fail_over()
            before = written[0]
            until(lambda: written[0] > before + 200)
            over.set()
            thread.join()
            settle(context)
            rows = {row[0] for row in database.run("SELECT id FROM t")}
            assert len(rows) > 400
            assert stored() == rows
            (seen,) = [found for found in lag.measure(context).sources if found.source == NAME]
            assert (seen.state, seen.remedy) == (lag.State.STREAMING, "")
        finally:
            over.set()
            sink.remove(context, "failovercache", purge=True)
            source.remove(context, NAME)
