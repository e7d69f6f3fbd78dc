"""The target of one table is gone or refuses: that table waits, by name; the others go on, in every sink."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from headrace.control.lag import State, TableLag, measure
from headrace.control.registry import Registry
from headrace.control.runs import start as runs
from headrace.model.schema import TableId
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client
from tests.support.mirror import Mirror, mirrored
from tests.support.stack import RunningStack
from tests.support.waiting import stays, until
from tests.support.watched import watched

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

TABLES = ("quiet", "busy")


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        "trouble",
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v text, large text)" for name in TABLES),
        *(
            f"INSERT INTO {name} SELECT i, 'v' || i, repeat(md5(i::text), 300) FROM generate_series(1, 50) i"
            for name in TABLES
        ),
    ) as opened:
        opened.settle()
        yield opened


def ask(mirror: Mirror, method: str, path: str) -> Any:
    config = ElasticsearchSink.Config(url=mirror.stack.endpoints.elasticsearch_url)
    with closing(Client(config)) as client:
        return client.request(method, f"/{path}").json()


def index_of(mirror: Mirror, table: str) -> str:
    return str(next(iter(ask(mirror, "GET", f"_alias/trouble-public-{table}"))))


def word(mirror: Mirror, sink: str, table: str) -> TableLag:
    tables = measure(mirror.context).tables
    return next(t for t in tables if (t.sink, t.table) == (f"trouble{sink}", f"public.{table}"))


def rows(mirror: Mirror, table: str) -> dict[str, str]:
    return {str(key): value for key, value in mirror.database.run(f"SELECT id, v FROM {table}")}


def equal(mirror: Mirror, table: str) -> bool:
    wanted = rows(mirror, table)
    stored = mirror.stored(table)
    return all({key: row["v"] for key, row in found.items()} == wanted for found in stored.values())


def test_a_target_that_is_gone_is_noticed_while_nobody_writes_and_filled_again(mirror: Mirror) -> None:
    """Z3, A12: each store loses one table, and two a row of it; nobody writes to it.

    Its time is that of five losses, after each of which all has to come to rest.
    """
    lake = Path(Registry(mirror.context.registry).sink("troublelake").settings["path"])
    redis: Any = Redis.from_url(mirror.stack.endpoints.redis_url)

    def lose_index() -> None:
        ask(mirror, "DELETE", index_of(mirror, "quiet"))

    def lose_document() -> None:
        ask(mirror, "DELETE", f"{index_of(mirror, 'quiet')}/_doc/7")

    def lose_keys() -> None:
        redis.delete(*redis.scan_iter(match="trouble:quiet:*", count=1000))

    def lose_key() -> None:
        redis.delete("trouble:quiet:7")

    def lose_directory() -> None:
        shutil.rmtree(lake / "public" / "quiet")

    losses = (
        ("search", lose_index),
        ("search", lose_document),
        ("cache", lose_keys),
        ("cache", lose_key),
        ("lake", lose_directory),
    )
    for sink, lose in losses:
        mirror.settle()

        def whole() -> bool:
            try:
                return equal(mirror, "quiet")
            except Exception:  # noqa: BLE001 - whatever a store says whose target is gone
                return False

        with watched(mirror.context, whole) as seen:
            lose()
            until(whole, why=lambda: measure(mirror.context).tables)
            mirror.settle()
        assert not seen.false_greens, sink
        others = {said.state for said in seen.words(f"trouble{sink}", "public.busy")}
        # While an index is made anew on a busy machine the store may be late to tell of the others, too.
        assert others <= {State.STREAMING, State.DEGRADED}, (sink, others)


@pytest.mark.deep
def test_a_file_of_the_lake_that_is_gone_is_told_until_it_is_back_or_the_table_is_built_anew(
    mirror: Mirror,
) -> None:
    """Nobody writes to the table meanwhile."""
    mirror.settle()
    table = Path(Registry(mirror.context.registry).sink("troublelake").settings["path"]) / "public" / "quiet"

    def is_told() -> bool:
        found = word(mirror, "lake", "quiet")
        told = "headrace resnapshot trouble public.quiet" in found.remedy
        return told and found.state not in (State.STREAMING, State.CATCHING_UP)

    aside = {file: file.rename(file.with_suffix(".aside")) for file in table.glob("*.parquet")}
    until(is_told)
    for file, kept in aside.items():
        kept.rename(file)
    mirror.settle()
    for file in aside:
        file.unlink()
    until(is_told)
    assert word(mirror, "lake", "busy").state is State.STREAMING
    runs.resnapshot(mirror.context, "trouble", tables=[TableId("public", "quiet")])
    mirror.settle()
    assert equal(mirror, "quiet")


@pytest.mark.deep
def test_a_table_whose_target_refuses_waits_and_the_others_go_on(mirror: Mirror) -> None:
    """G-B9: a closed index; changes of all kinds meanwhile; what waited is right when it is opened."""
    mirror.settle()
    index = index_of(mirror, "quiet")
    ask(mirror, "POST", f"{index}/_close")
    try:
        mirror.database.run(
            "INSERT INTO quiet VALUES (51, 'new', 'x')",
            "UPDATE quiet SET id = 1001 WHERE id = 1",  # its large value is not told
            "UPDATE quiet SET v = 'touched' WHERE id = 2",
            "DELETE FROM quiet WHERE id = 3",
            "UPDATE busy SET v = 'meanwhile' WHERE id = 1",
        )
        until(lambda: mirror_of(mirror, "search", "busy").get("1") == "meanwhile")
        until(lambda: word(mirror, "search", "quiet").state is State.DEGRADED)
        found = word(mirror, "search", "quiet")
        assert "closed" in found.reason
        assert word(mirror, "search", "busy").state is State.STREAMING
        for sink in ("cache", "lake"):
            assert word(mirror, sink, "quiet").state is State.STREAMING

        def waits() -> bool:
            mirror.database.run("UPDATE busy SET v = v || '.' WHERE id = 2")
            return not mirror.in_sync and word(mirror, "search", "quiet").state is State.DEGRADED

        stays(waits, 5)  # through several tries
        mirror.database.run(
            "UPDATE quiet SET id = 1002 WHERE id = 1001", "UPDATE quiet SET v = 'again' WHERE id = 2"
        )
    finally:
        ask(mirror, "POST", f"{index}/_open")
    mirror.settle()
    assert not mirror.letters
    for table in TABLES:
        assert equal(mirror, table)
    large = mirror.stored("quiet")["troublesearch"]["1002"]["large"]
    assert isinstance(large, str)
    assert len(large) == 32 * 300


def mirror_of(mirror: Mirror, sink: str, table: str) -> dict[str, str]:
    return {key: row["v"] for key, row in mirror.stored(table)[f"trouble{sink}"].items()}
