"""A server hangs: it takes connections and does not answer. Who does not need it goes on; nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import psycopg
import pytest

from headrace.control.lag import State, measure
from headrace.observe import pidfile
from tests.support.shop import Shop
from tests.support.waiting import elapse

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(500)]

HANGS_S = 20.0
KIND = {"elasticsearch": "elasticsearch", "redis": "redis"}


@contextmanager
def hanging(shop: Shop, name: str) -> Iterator[None]:
    """Stop a server's processes, as a machine does that swaps; let them go on at the end."""
    pid = pidfile.alive(shop.running.home.pidfile(name))
    assert pid is not None
    group = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    try:
        for one in group:
            os.kill(one.pid, signal.SIGSTOP)
        yield
    finally:
        for one in group:
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGCONT)


@pytest.mark.parametrize(("name", "seed"), [("elasticsearch", 61), ("redis", 62), ("kafka", 63)])
def test_a_server_that_hangs_delays_nobody_else_and_loses_nothing(shop: Shop, name: str, seed: int) -> None:
    people = shop.people(seed=seed, rate=80)
    people.start()
    try:
        elapse(1.0)
        with hanging(shop, name), psycopg.connect(shop.dsn, autocommit=True) as database:
            deadline = time.monotonic() + HANGS_S
            others_went_on = False
            while time.monotonic() < deadline:
                # P2: the stream is cut all the while.
                database.execute(
                    "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
                    " AND database = current_database()"
                )
                elapse(4.0)
                if name in KIND:
                    said = [t for t in measure(shop.context).tables if t.sink in shop.sinks]
                    well = {t.sink for t in said if t.state in (State.STREAMING, State.CATCHING_UP)}
                    others = {sink for sink, kind in shop.sinks.items() if kind != KIND[name]}
                    others_went_on |= others <= well
                    assert not measure(shop.context).in_sync
            assert others_went_on or name not in KIND
    finally:
        tally = people.stop()
    assert tally.changes > 0
    shop.converge(240.0)
