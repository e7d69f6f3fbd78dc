"""Rows whose records are larger than the source lets through: named, set aside, and nothing else waits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from headrace.cli.context import open_context
from headrace.cli.main import app
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.worker import bounds
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack
from tests.support.waiting import settle, until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

MOST = 1 << 20


@dataclass(frozen=True)
class Place:
    context: Context
    stack: RunningStack
    database: Database
    cache: redis.Redis

    def size(self, table: str, key: int) -> int | None:
        """Return how long the cached value's text is; None when there is no row."""
        text = self.cache.get(f"large:{table}:{key}")
        return len(json.loads(str(text))["b"] or "") if text else None

    def letters(self) -> list[dict[str, Any]]:
        done = CliRunner().invoke(app, ["dlq", "list", "--json", "--home", str(self.stack.home.root)])
        found: list[dict[str, Any]] = json.loads(done.stdout)["letters"]
        return found

    def word(self, table: str) -> str:
        (found,) = [t for t in lag.measure(self.context).tables if t.table == f"public.{table}"]
        return found.state.value


@pytest.fixture(scope="module")
def place(stack: RunningStack) -> Iterator[Place]:
    context = open_context(stack.home.root)
    with fresh_database(stack.endpoints.postgres_dsn, "large") as database:
        database.run(
            "CREATE TABLE blobs (id int PRIMARY KEY, b text, n int)",
            "CREATE TABLE whole (id int PRIMARY KEY, b text, n int)",
            "ALTER TABLE whole REPLICA IDENTITY FULL",
            f"INSERT INTO blobs VALUES (1, repeat('x', {2 * MOST}), 1), (2, 'small', 2)",
        )
        source.add(context, "large", database.dsn, settings=SourceSettings(max_record_bytes=MOST))
        sink.add(context, "large_cache", "redis", settings={"url": stack.endpoints.redis_url})
        client = redis.Redis.from_url(stack.endpoints.redis_url, decode_responses=True)
        yield Place(context, stack, database, client)
        sink.remove(context, "large_cache", purge=True)
        source.remove(context, "large")


def test_the_local_worker_has_the_converter_and_says_so(place: Place) -> None:
    with Connect(place.context.connect_url) as connect:
        assert bounds(connect.plugins())


def test_a_row_that_is_too_large_is_set_aside_by_name_and_the_others_go_on(place: Place) -> None:
    place.database.run(
        f"INSERT INTO blobs VALUES (3, repeat('y', {3 * MOST}), 3)",
        "INSERT INTO blobs VALUES (4, 'after', 4)",
    )
    until(lambda: place.size("blobs", 4) == len("after"))
    until(lambda: len(place.letters()) == 2)
    told = {letter["row"]: letter for letter in place.letters()}
    assert told.keys() == {"1", "3"}
    assert {letter["code"] for letter in told.values()} == {"RECORD_TOO_LARGE"}
    size = int(re.sub(r"\D", "", told["3"]["reason"]))
    assert 3 * MOST < size < 3 * MOST + 2_000
    assert place.size("blobs", 3) is None
    until(lambda: place.word("blobs") == "degraded")
    until(lambda: place.word("whole") == "streaming")

    place.database.run("UPDATE blobs SET b = 'short now' WHERE id IN (1, 3)")
    settle(place.context)
    assert place.size("blobs", 1) == place.size("blobs", 3) == len("short now")


@pytest.mark.deep
def test_a_record_above_what_a_producer_buffers_by_itself_is_let_through(place: Place) -> None:
    """Within the largest limit that a source may have, in the first snapshot and in the stream."""
    size = 33 << 20
    with fresh_database(place.stack.endpoints.postgres_dsn, "larger") as database:
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY, b text)", f"INSERT INTO t VALUES (1, repeat('x', {size}))"
        )
        source.add(place.context, "larger", database.dsn, settings=SourceSettings(max_record_bytes=64 << 20))
        try:
            database.run(f"INSERT INTO t VALUES (2, repeat('y', {size}))")
            kafka = Kafka(place.context.kafka_bootstrap)
            until(lambda: len(kafka.committed("larger.public.t")[0]) == 2)
            found = kafka.committed("larger.public.t")[0]
            assert [len(value["after"]["b"]) for value in found] == [size, size]
        finally:
            source.remove(place.context, "larger")


def test_an_old_row_that_nobody_reads_does_not_make_a_record_too_large(place: Place) -> None:
    most_of_it = MOST * 2 // 3
    place.database.run(
        f"INSERT INTO whole VALUES (1, repeat('a', {most_of_it}), 1), (2, repeat('b', {most_of_it}), 1)",
        "UPDATE whole SET n = 2 WHERE id = 1",
    )
    settle(place.context)
    assert place.size("whole", 1) == most_of_it
    assert json.loads(str(place.cache.get("large:whole:1")))["n"] == 2


def test_a_delete_needs_no_more_than_its_key(place: Place) -> None:
    place.database.run(f"INSERT INTO whole VALUES (5, 'soon larger', 1), (6, repeat('c', {2 * MOST}), 1)")
    until(lambda: place.size("whole", 5) is not None)
    place.database.run(f"UPDATE whole SET b = repeat('d', {2 * MOST}) WHERE id = 5")
    until(lambda: place.word("whole") == "degraded")
    place.database.run("DELETE FROM whole WHERE id IN (5, 6)")
    settle(place.context)
    assert place.size("whole", 5) is None
