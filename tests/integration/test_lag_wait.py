"""``headrace lag --wait``: what was committed before the command is in the stores when it says so."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from tests.support.database import Database, fresh_database
from tests.support.patience import WAIT_S
from tests.support.stack import RunningStack
from tests.support.waiting import settle, until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "proven") as database:
        database.run("CREATE TABLE notes (id int PRIMARY KEY)")
        source.add(context, "proven", database.dsn, settings=SourceSettings(heartbeat_ms=500), wait=False)
        sink.add(context, "provencache", "redis", settings={"url": stack.endpoints.redis_url}, wait=False)
        settle(context)
        yield database
        sink.remove(context, "provencache", purge=True)
        source.remove(context, "proven")


def wait(context: Context, seconds: int) -> tuple[int, dict[str, Any]]:
    """Return the exit code of the command and the report that it prints."""
    command = ["lag", "--wait", str(seconds), "--json", "--home", str(context.registry.parent)]
    told = CliRunner().invoke(app, command)
    report: dict[str, Any] = json.loads(told.stdout.splitlines()[0])
    assert told.exit_code == 0 or "LAG_NOT_IN_SYNC" in told.output
    return told.exit_code, report


def test_what_was_committed_before_is_in_the_store(
    context: Context, database: Database, stack: RunningStack
) -> None:
    with redis.Redis.from_url(stack.endpoints.redis_url) as cache:
        for key in range(5):
            database.run(f"INSERT INTO notes VALUES ({key})")
            code, report = wait(context, int(WAIT_S))
            assert (code, report["in_sync"]) == (0, True)
            assert cache.exists(f"proven:notes:{key}")


def test_a_log_that_nobody_sends_is_not_taken_for_an_empty_one(
    context: Context, database: Database, stack: RunningStack
) -> None:
    until(lambda: lag.measure(context).in_sync)
    ((sender,),) = database.run(
        "SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'headrace_proven'"
    )
    os.kill(sender, signal.SIGSTOP)
    try:
        database.run("INSERT INTO notes VALUES (100)")
        assert wait(context, 5)[0] == 1
        assert not lag.measure(context).in_sync
    finally:
        os.kill(sender, signal.SIGCONT)
    assert wait(context, int(WAIT_S))[0] == 0
    with redis.Redis.from_url(stack.endpoints.redis_url) as cache:
        assert cache.exists("proven:notes:100")
