"""Stores that a sink cannot use: the check says so, `sink add` is refused alike, and what is told helps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from headrace.config.source import SourceSettings
from headrace.control import lag, sink, sink_check, source
from headrace.control.context import Context
from headrace.control.opened import opened_sink
from headrace.control.registry import Registry
from headrace.model.errors import SinkError
from headrace.model.finding import Finding, Severity
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client, path
from tests.support.certificate import self_signed
from tests.support.database import Database, fresh_database
from tests.support.gate import gate
from tests.support.leftovers import left_by_sink
from tests.support.mirror import KINDS, store_settings
from tests.support.redis_server import other_redis
from tests.support.stack import RunningStack
from tests.support.waiting import settle
from tests.support.wire import Wire, wire

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "unfit"
BEAT = SourceSettings(heartbeat_ms=300)


@pytest.fixture(scope="module")
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, NAME) as made:
        made.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        source.add(context, NAME, made.dsn, settings=BEAT)
        yield made
        source.remove(context, NAME)


@pytest.fixture(autouse=True)
def _removed(context: Context, database: Database) -> Iterator[None]:
    yield
    for entry in Registry(context.registry).sinks():
        sink.remove(context, entry.name, purge=True)


def errors(context: Context, kind: str, **settings: Any) -> list[Finding]:
    found = sink_check.check(context, NAME, kind, settings=settings, source=NAME)
    return [one for one in found if one.severity is Severity.ERROR]


def held(context: Context, stack: RunningStack) -> dict[str, list[str]]:
    """Return what there is of the sink and of its targets, but for the note of whom it claimed them as.

    That is made anew by every add, and whatever is refused takes it away.
    """
    found = left_by_sink(context, stack, NAME, NAME, stack.endpoints.lake_path / NAME)
    return {place: sorted(map(str, what)) for place, what in found.items() if place != "owners"}


def refused(context: Context, stack: RunningStack, kind: str, **settings: Any) -> Finding:
    """Return the one error that a check finds; the sink is refused alike, and leaves nothing."""
    before = held(context, stack)
    (found,) = errors(context, kind, **settings)
    with pytest.raises(SinkError) as caught:
        sink.add(context, NAME, kind, settings=settings, source=NAME)
    assert (caught.value.code, caught.value.hint) == (found.code, found.hint)
    assert held(context, stack) == before
    return found


def through(url: str, way: Wire) -> str:
    at = urlsplit(url)
    login = at.netloc.rpartition("@")[0]
    return urlunsplit(at._replace(netloc=f"{login}@127.0.0.1:{way.port}"))


def rows_of(context: Context) -> list[dict[str, Any]]:
    """Return the rows that the sink holds when it shows all."""
    settle(context)
    registry = Registry(context.registry)
    (table,) = registry.source(NAME).tables
    with opened_sink(registry.sink(NAME)) as opened:
        return sorted((dict(stored.row) for stored in opened.scan(table.schema)), key=lambda row: row["id"])


@pytest.mark.parametrize(
    ("kind", "told", "older", "code"),
    [
        ("redis", b"redis_version:6.", b"redis_version:4.", "REDIS_VERSION"),
        ("elasticsearch", b'"version":"9.', b'"version":"7.', "ES_VERSION"),
    ],
)
def test_a_store_that_is_too_old(
    context: Context, stack: RunningStack, kind: str, told: bytes, older: bytes, code: str
) -> None:
    url = store_settings(stack, NAME)[kind]["url"]
    at = urlsplit(url)
    with wire(str(at.hostname), int(at.port or 0)) as way:
        way.alter(told, older)
        found = refused(context, stack, kind, url=through(url, way))
        assert found.code == code
        assert f" {older[-2:].decode()}" in found.message
        assert found.hint.startswith("Upgrade to ")
    assert errors(context, kind, url=url) == []


def test_a_redis_in_cluster_mode(context: Context, stack: RunningStack, tmp_path: Path) -> None:
    with other_redis(tmp_path, cluster_enabled="yes") as url:
        found = refused(context, stack, "redis", url=url)
    assert (found.code, found.hint) == ("REDIS_CLUSTER", "Use a Redis without cluster mode.")
    with other_redis(tmp_path) as url:
        assert errors(context, "redis", url=url) == []


def test_an_elasticsearch_whose_certificate_nobody_trusts(
    context: Context, stack: RunningStack, tmp_path: Path
) -> None:
    authority, key = tmp_path / "authority.pem", tmp_path / "key.pem"
    self_signed(key, authority, "127.0.0.1")
    plain = stack.endpoints.elasticsearch_url
    with gate(plain, (authority, key)) as sealed:
        sealed.admit_user("u", "p")
        known = {"url": sealed.url, "username": "u", "password": "p"}
        found = refused(context, stack, "elasticsearch", **known)
        assert found.code == "ES_TLS"
        _, _, setting = found.hint.partition("--set ")
        name, _, _ = setting.rstrip(".").partition("=")
        given = {**known, name: str(authority)}
        sink.add(context, NAME, "elasticsearch", settings=given, source=NAME)
        assert rows_of(context) == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
        sink.remove(context, NAME, purge=True)

        other = {**known, "url": sealed.url.replace("127.0.0.1", "localhost"), "ca_certs": str(authority)}
        found = refused(context, stack, "elasticsearch", **other)
        assert found.code == "ES_TLS"
        assert "a name of the server in the url" in found.hint
    found = refused(context, stack, "elasticsearch", url=plain.replace("http:", "https:"))
    assert found.code == "ES_TLS"
    assert "http://" in found.hint


def test_an_elasticsearch_that_does_not_know_the_credentials(context: Context, stack: RunningStack) -> None:
    """There is no sink yet that could be given others."""
    with gate(stack.endpoints.elasticsearch_url) as before:
        found = refused(context, stack, "elasticsearch", url=before.url, username="u", password="p")
        assert found.code == "ES_AUTH"
        assert "rotate" not in found.hint
        by_key, _, by_password = found.hint.removeprefix("Add it with ").partition("; or ")
        assert by_key.startswith("--set api_key=")
        assert by_password.startswith("--set username=")
        before.admit_key("a2V5")
        assert errors(context, "elasticsearch", url=before.url, api_key="a2V5") == []


SPARED = "spared"
"""A source of two tables."""


@pytest.fixture
def one_taken(context: Context, stack: RunningStack) -> Iterator[dict[str, str]]:
    """Yield settings of an Elasticsearch in which one of two tables' names is that of somebody's index."""
    url = stack.endpoints.elasticsearch_url
    with fresh_database(stack.endpoints.postgres_dsn, SPARED) as made, closing(_client(url)) as client:
        made.run(
            "CREATE TABLE fit (id int PRIMARY KEY, v text)", "INSERT INTO fit VALUES (1, 'a'), (2, 'b')",
            "CREATE TABLE taken (id int PRIMARY KEY)", "INSERT INTO taken VALUES (1)",
        )  # fmt: skip
        client.request("PUT", path(f"{SPARED}-public-taken"))
        source.add(context, SPARED, made.dsn, settings=BEAT)
        try:
            yield {"url": url}
        finally:
            for entry in Registry(context.registry).sinks(SPARED):
                sink.remove(context, entry.name, purge=True)
            source.remove(context, SPARED)
            client.request("DELETE", path(f"{SPARED}-public-taken"))


def _client(url: str) -> Client:
    return Client(ElasticsearchSink.Config(url=url))


def test_a_table_whose_name_is_taken_is_left_out_by_name_and_the_others_are_mirrored(
    context: Context, database: Database, one_taken: dict[str, str]
) -> None:
    words: dict[str, Any] = {"settings": one_taken, "source": SPARED}
    with pytest.raises(SinkError) as caught:
        sink.add(context, SPARED, "elasticsearch", **words)
    assert caught.value.code == "ES_NAME_TAKEN"
    # The address has a password in it, which no hint repeats.
    assert caught.value.hint.endswith("Or leave public.taken out: give the same command with --skip-unfit")
    entry, found = sink.add(context, SPARED, "elasticsearch", **words, skip_unfit=True)
    assert entry.tables.keys() == {f"{SPARED}.public.fit"}
    (told,) = (one for one in found if one.table is not None)
    assert (told.severity, told.code, str(told.table)) == (
        Severity.WARNING, "ES_NAME_TAKEN", "public.taken"
    )  # fmt: skip
    settle(context)
    assert {one.table for one in lag.measure(context).tables if one.sink == SPARED} == {"public.fit"}
    registry = Registry(context.registry)
    (fit,) = (one for one in registry.source(SPARED).tables if str(one.schema.table) == "public.fit")
    with opened_sink(registry.sink(SPARED)) as opened:
        assert {stored.row["v"] for stored in opened.scan(fit.schema)} == {"a", "b"}


LATER = "later"
"""A source that was registered before, and more often."""


@pytest.mark.parametrize("short", KINDS)
def test_a_target_with_rows_of_a_later_life(
    context: Context, database: Database, stack: RunningStack, short: str
) -> None:
    """As they are left by a source of the same tables that has begun anew more often than ours."""
    kind, settings = KINDS[short], dict(store_settings(stack, NAME)[KINDS[short]])
    settings |= {"elasticsearch": {"prefix": f"{NAME}-"}, "redis": {"key_prefix": f"{NAME}:"}}.get(kind, {})
    registry = Registry(context.registry)
    for _ in range(4):  # by the hour they rise as well
        registry.next_epoch(f"{LATER}.public.t")
    database.run("INSERT INTO t VALUES (3, 'of the later life')")
    source.add(context, LATER, database.dsn, settings=BEAT)
    try:
        sink.add(context, NAME, kind, settings=settings, source=LATER)
        settle(context)
        sink.remove(context, NAME)
    finally:
        source.remove(context, LATER)
    database.run("DELETE FROM t WHERE id = 3")

    (found,) = errors(context, kind, **settings)
    assert found.code == "SINK_TARGET_AHEAD"
    assert "public.t" in found.message
    before = held(context, stack)
    with pytest.raises(SinkError) as caught:
        sink.add(context, NAME, kind, settings=settings, source=NAME)
    assert (caught.value.code, caught.value.hint) == (found.code, found.hint)
    assert held(context, stack) == before
    assert "--take-over" in found.hint
    sink.add(context, NAME, kind, settings=settings, source=NAME, take_over=True)
    assert rows_of(context) == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
