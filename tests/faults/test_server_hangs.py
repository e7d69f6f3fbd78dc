"""A server hangs: it takes connections and does not answer. Who does not need it goes on; nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import psutil
import psycopg
import pytest

from headrace.control.kafka import Kafka
from headrace.control.lag import State, measure
from headrace.control.opened import open_sink
from headrace.control.registry import Registry
from headrace.observe import pidfile
from tests.support.mirror import mirrored
from tests.support.shop import Shop
from tests.support.stack import RunningStack
from tests.support.waiting import elapse, until

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


ROWS = 60_000
MANY = f"SELECT i, repeat(md5(i::text), 4) FROM generate_series(1, {ROWS}) i"


def test_a_store_that_hangs_amid_a_large_batch_keeps_no_other_from_large_batches(
    stack: RunningStack, shop: Shop
) -> None:
    """Each table is a task of a batch; those of the store that hangs do not end."""
    tables = ("ones", "twos")
    with mirrored(
        stack, "hung", *(f"CREATE TABLE {t} (id int PRIMARY KEY, v text)" for t in tables)
    ) as mirror:
        mirror.settle()
        mirror.pause("search", "cache")
        mirror.database.run(*(f"INSERT INTO {table} {MANY}" for table in tables))
        kafka = Kafka(mirror.context.kafka_bootstrap)
        topics = [f"hung.public.{table}" for table in tables]
        until(lambda: all(end >= ROWS for _, end in kafka.ends(topics).values()), 240)
        mirror.resume("search")

        def stored(short: str) -> int:
            with closing(open_sink(Registry(mirror.context.registry).sink(f"hung{short}"))) as opened:
                return sum(opened.count(mirror.schema(table)) for table in tables)

        until(lambda: stored("search") > 0)
        with hanging(shop, "elasticsearch"):
            mirror.resume("cache")
            until(lambda: stored("cache") == ROWS * len(tables))
            assert not mirror.in_sync
        mirror.settle()
        assert stored("search") == ROWS * len(tables)
