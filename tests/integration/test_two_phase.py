"""Two-phase commit: what is prepared is not seen before it is committed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis import Redis

from headrace.config.source import SourceSettings
from headrace.control import sink, source
from headrace.control.context import Context
from tests.support.database import fresh_database
from tests.support.servers import postgres_server
from tests.support.stack import RunningStack
from tests.support.waiting import settle

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(300)]

NAME = "phases"


def test_what_is_prepared_is_seen_when_it_is_committed_and_never_when_it_is_not(
    context: Context, stack: RunningStack
) -> None:
    with (
        postgres_server(18, "max_prepared_transactions=4") as dsn,
        fresh_database(dsn, NAME) as database,
        Redis.from_url(stack.endpoints.redis_url) as cache,
    ):

        def stored() -> dict[int, str]:
            found: Any = cache.mget(list(cache.scan_iter(f"{NAME}:t:*")))
            rows = [json.loads(text) for text in found if text is not None]
            return {row["id"]: row["v"] for row in rows}

        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        source.add(context, NAME, database.dsn, settings=SourceSettings(heartbeat_ms=300))
        sink.add(context, "phasescache", "redis", settings={"url": stack.endpoints.redis_url}, source=NAME)
        try:
            database.run(
                "BEGIN; UPDATE t SET v = 'kept' WHERE id = 1; INSERT INTO t VALUES (3, 'kept');"
                " PREPARE TRANSACTION 'kept'",
                "BEGIN; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (4, 'dropped');"
                " PREPARE TRANSACTION 'dropped'",
                "INSERT INTO t VALUES (5, 'meanwhile')",
            )
            settle(context)
            assert stored() == {1: "a", 2: "b", 5: "meanwhile"}
            # The connector dies while both are open, and reads its log from an earlier place.
            database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
            database.run("COMMIT PREPARED 'kept'", "ROLLBACK PREPARED 'dropped'")
            database.run("UPDATE t SET v = 'after' WHERE id = 2")
            settle(context)
            assert stored() == {1: "kept", 2: "after", 3: "kept", 5: "meanwhile"}
            assert stored() == dict(database.run("SELECT id, v FROM t"))
        finally:
            sink.remove(context, "phasescache", purge=True)
            source.remove(context, NAME)
