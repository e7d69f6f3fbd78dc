"""Statements work as ever while connector, watcher, engine and runs are at work on their tables."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.runs import start as runs
from headrace.control.watcher import look_now
from headrace.model.errors import HeadraceError
from tests.support.application import fit, made, outcomes, shapes, table
from tests.support.database import fresh_database
from tests.support.servers import MAJORS, postgres_server
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(500)]

NAME = "live"


@pytest.fixture(params=MAJORS)
def server(request: pytest.FixtureRequest, stack: RunningStack) -> Iterator[str]:
    if request.param == max(MAJORS):
        yield stack.endpoints.postgres_dsn
        return
    with postgres_server(request.param) as dsn:
        yield dsn


def test_every_statement_works_while_its_table_is_mirrored_and_read_anew(
    context: Context, stack: RunningStack, server: str
) -> None:
    known = shapes(server)
    with fresh_database(server, "unwatched") as never, fresh_database(server, NAME) as during:
        for database in (never, during):
            made(database, known)
        captured = fit(during, known)
        keys = {table(shape): shape.key for shape in captured if shape.key}
        settings = SourceSettings(heartbeat_ms=300, snapshot_chunk_rows=16)
        tables = [table(shape) for shape in captured]
        source.add(context, NAME, during.dsn, tables=tables, keys=keys, settings=settings)
        sink.add(context, "livecache", "redis", settings={"url": stack.endpoints.redis_url}, source=NAME)
        over, looks = threading.Event(), [0]

        def busy() -> None:
            """Look, and read the tables anew, again and again."""
            while not over.wait(0.05):
                with suppress(HeadraceError):  # the statements take tables away
                    look_now(context, NAME)
                    lag.measure(context)
                    looks[0] += 1
                for one in tables[looks[0] % len(tables) :][:1]:
                    with suppress(HeadraceError):
                        runs.start(context, NAME, tables=[one])

        thread = threading.Thread(target=busy)
        thread.start()
        try:
            for shape in known:
                before, seen = outcomes(never, shape), looks[0]
                until(lambda seen=seen: looks[0] > seen)  # type: ignore[misc]
                assert outcomes(during, shape) == before, shape.name
        finally:
            over.set()
            thread.join()
            sink.remove(context, "livecache", purge=True)
            source.remove(context, NAME)
