"""Connect is away, or just back: what is not known yet is not lost, and what is known to be is told."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.observe import pidfile
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack
from tests.support.waiting import settle, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(600)]

NAME = "starts"


@pytest.fixture
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, NAME) as made:
        made.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 100)")
        source.add(context, NAME, made.dsn, settings=SourceSettings(heartbeat_ms=300))
        sink.add(context, f"{NAME}cache", "redis", settings={"url": stack.endpoints.redis_url}, source=NAME)
        settle(context)
        yield made
        stack.stack.up()
        sink.remove(context, f"{NAME}cache", purge=True)
        source.remove(context, NAME)


def told(context: Context) -> lag.SourceLag:
    return next(found for found in lag.measure(context).sources if found.source == NAME)


def kill_connect(stack: RunningStack) -> None:
    pid = pidfile.alive(stack.home.pidfile("connect"))
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: pidfile.alive(stack.home.pidfile("connect")) is None)


@pytest.mark.parametrize("paused", [False, True], ids=["streaming", "paused"])
def test_a_worker_that_starts_has_lost_nothing(
    context: Context, database: Database, stack: RunningStack, paused: bool
) -> None:
    """A worker that reads its own topics, while `lag` is asked, knows neither connector nor position."""
    if paused:
        source.pause(context, NAME)
        until(lambda: told(context).state is lag.State.PAUSED)
    seen: list[lag.SourceLag] = []
    wanted = lag.State.PAUSED if paused else lag.State.STREAMING
    kill_connect(stack)

    def back() -> bool:
        seen.append(told(context))
        return seen[-1].state is wanted and len(seen) > 3

    starting = threading.Thread(target=stack.stack.up)
    starting.start()
    until(back, why=lambda: seen[-1])
    starting.join()
    assert not [one for one in seen if one.state is lag.State.RESYNC_REQUIRED or "recover" in one.remedy]
    assert not Registry(context.registry).source(NAME).gap
    if paused:
        source.resume(context, NAME)
    settle(context)


def test_a_slot_that_is_lost_while_connect_is_away_is_told_first(
    context: Context, database: Database, stack: RunningStack
) -> None:
    kill_connect(stack)
    slot = f"headrace_{NAME}"
    ours = f"FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"
    database.run(f"SELECT pg_terminate_backend(active_pid, 5000) {ours}")
    until(lambda: not database.run(f"SELECT 1 {ours}"))
    database.run(f"SELECT pg_drop_replication_slot('{slot}')")
    found = told(context)
    assert found.state is lag.State.RESYNC_REQUIRED
    assert "slot" in found.reason
    assert found.remedy == f"headrace recover {NAME}"
