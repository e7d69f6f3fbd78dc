"""A database may be called anything that `source check` lets through: the connector reads that very one."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.config.source import SourceSettings
from headrace.control import source, source_check
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.model.errors import HeadraceError, SourceError
from headrace.model.finding import Severity
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack
from tests.support.wire import wire

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAMES = (
    "a b",
    "a/b",
    "a#b",
    "a&b",
    "a;b",
    "a:b",
    "a=b",
    "a'b",
    'a"b',
    "a\\b",
    "A",
    "a.b",
    "a,b",
    "a@b",
    "a|b",
    "ä€",
    "a-b",
    "a+b",
    "a%b",
    "a?b",
    "a$b",
    "${b}",
    "a{b}",
    "a<b>",
    "a*b",
    "a~b",
    "a!b",
    "a(b)",
    "a^b",
    "a`b",
    "[a]",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_database_of_that_name_is_read_or_refused_by_it(
    context: Context, stack: RunningStack, name: str
) -> None:
    with fresh_database(stack.endpoints.postgres_dsn, name) as database:
        read_or_refused(context, database, name)


def of_bytes(most: int) -> st.SearchStrategy[str]:
    """Return names of at most so many bytes, such as Postgres keeps whole."""
    text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=most)
    return text.filter(lambda name: len(name.encode()) <= most)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(of_bytes(63))
def test_so_is_a_database_of_any_name(context: Context, stack: RunningStack, name: str) -> None:
    with fresh_database(stack.endpoints.postgres_dsn, name) as database:
        read_or_refused(context, database, name)


def read_or_refused(context: Context, database: Database, name: str) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    refused = {one.code for one in source_check.check(database.dsn) if one.severity is Severity.ERROR}
    assert refused <= {"SOURCE_DATABASE_NAME"}
    if refused:
        with pytest.raises(SourceError) as caught:
            source.add(context, "named", database.dsn)
        assert caught.value.code == "SOURCE_DATABASE_NAME"
    else:
        is_read(context, database, database.dsn, name)


def is_read(context: Context, database: Database, url: str, name: str) -> None:
    source.add(context, "named", url, settings=SourceSettings(heartbeat_ms=300))
    try:
        assert Kafka(context.kafka_bootstrap).ends(["named.public.t"])["named.public.t", 0][1] > 0
        slot = "SELECT database FROM pg_replication_slots WHERE slot_name = 'headrace_named'"
        assert database.value(slot) == name
    finally:
        source.remove(context, "named")


@pytest.mark.parametrize(
    ("host", "options"),
    [
        ("localhost", ""),
        ("LocalHost", ""),
        ("127.0.0.1", ""),
        ("", "?hostaddr=127.0.0.1"),
        ("no.such.host.invalid", "?hostaddr=127.0.0.1"),
    ],
)
def test_a_host_is_the_same_for_libpq_and_for_java(
    context: Context, stack: RunningStack, host: str, options: str
) -> None:
    at = urlsplit(stack.endpoints.postgres_dsn)
    with (
        fresh_database(stack.endpoints.postgres_dsn, "hosted") as database,
        wire(str(at.hostname), int(at.port or 0)) as way,
    ):
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        login = at.netloc.rpartition("@")[0]
        url = f"postgresql://{login}@{host}:{way.port}/hosted{options}"
        assert [one for one in source_check.check(url) if one.severity is Severity.ERROR] == []
        is_read(context, database, url, "hosted")
        assert way.connections > 1


@pytest.mark.parametrize("place", ["[::1]:{port}/hosted", "name.invalid:{port}/hosted?hostaddr=::1"])
def test_a_number_of_ipv6_is_refused_as_that(context: Context, stack: RunningStack, place: str) -> None:
    """libpq takes it, and Debezium does not."""
    at = urlsplit(stack.endpoints.postgres_dsn)
    with (
        fresh_database(stack.endpoints.postgres_dsn, "hosted") as database,
        wire(str(at.hostname), int(at.port or 0), "::1") as way,
    ):
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        url = f"postgresql://{at.netloc.rpartition('@')[0]}@{place.format(port=way.port)}"
        (error,) = [one for one in source_check.check(url) if one.severity is Severity.ERROR]
        assert (error.code, "::1" in error.message) == ("SOURCE_URL_INVALID", True)
        with pytest.raises(HeadraceError) as caught:
            source.add(context, "named", url)
        assert caught.value.code in ("SOURCE_URL_INVALID", "SOURCE_UNFIT")
