"""Through a connection pooler nothing is set in any session, and the server's own address is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.config.source import SourceSettings
from headrace.control import source_check
from headrace.model.errors import SourceError
from headrace.model.finding import Severity
from headrace.model.key import Key
from headrace.model.schema import TableId
from tests.support.database import Database
from tests.support.pooler import pooler
from tests.support.servers import postgres_server

pytestmark = pytest.mark.stack

T = TableId("public", "t")
PROCESS = "SELECT pg_backend_pid()"
SET = """
SELECT name FROM pg_settings
WHERE source IN ('session', 'client') AND name NOT IN ('application_name', 'client_encoding')
"""
"""A pooler keeps the two that are left out here for each client."""
HOW = [pytest.param(False, id="refuses"), pytest.param(True, id="ignores")]


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgres_server(18) as dsn:
        made = Database(dsn)
        made.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        yield made


def refused(attempt: Callable[[], object]) -> SourceError:
    with pytest.raises(SourceError) as caught:
        attempt()
    assert caught.value.code == "SOURCE_POOLED"
    return caught.value


@pytest.mark.parametrize("ignores", HOW)
def test_sessions_that_are_lent_are_left_as_they_are(server: Database, ignores: bool) -> None:
    """What the application finds in its next session is what was in it; what is told is then done."""
    with pooler(server.dsn, takes_options=ignores) as url, psycopg.connect(url, autocommit=True) as other:
        assert other.execute(PROCESS).fetchone() != (other.info.backend_pid,)
        before = other.execute(SET).fetchall()
        error = refused(lambda: source_check.check(url))
        assert other.execute(SET).fetchall() == before
    told = error.hint.rpartition(" ")[2]
    assert told == server.dsn
    assert "SOURCE_TABLE" in {one.code for one in source_check.check(told)}


@pytest.mark.parametrize("ignores", HOW)
def test_every_session_of_ours_is_refused_alike(server: Database, ignores: bool) -> None:
    (schema,) = PostgresSource(server.dsn).catalogue([T])
    capture = Capture(
        source="pooled", tables=(schema,), placeholder="", password="", settings=SourceSettings()
    )
    with pooler(server.dsn, takes_options=ignores) as url:
        source = PostgresSource(url)
        for attempt in (
            lambda: source.tables(["public"]),
            lambda: source.hold(capture),
            lambda: source.setup(capture),
            lambda: source.watch(capture).look({}),
            lambda: source.lookup(schema, [Key(("1",))], ["id"], ()),
            source.answer_seconds,
        ):
            refused(attempt)
        with psycopg.connect(url, autocommit=True) as other:
            assert other.execute(SET).fetchall() == []


def test_a_proxy_that_gives_each_client_its_own_session_is_none(server: Database) -> None:
    """Such as stand before servers of providers: the number of the process is the proxy's own there, too."""
    with pooler(server.dsn, one_each=True) as url:
        found = source_check.check(url)
        assert not [one for one in found if one.severity is Severity.ERROR]
        with psycopg.connect(url, autocommit=True) as other:
            assert other.execute(PROCESS).fetchone() != (other.info.backend_pid,)
