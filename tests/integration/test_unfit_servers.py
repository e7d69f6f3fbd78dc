"""Servers that cannot be a source: the check says so, `source add` is refused alike and leaves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.config.source import SourceSettings
from headrace.control import source, source_check
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.model.errors import HeadraceError
from headrace.model.finding import Severity
from tests.support.database import Database
from tests.support.leftovers import left_by_source
from tests.support.servers import TOO_OLD, postgres_server
from tests.support.standby import pair
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "unserved"
BEAT = SourceSettings(heartbeat_ms=300)


def code_of(attempt: Callable[[], object]) -> str:
    with pytest.raises(HeadraceError) as caught:
        attempt()
    return caught.value.code


@pytest.mark.parametrize("major", TOO_OLD)
def test_a_postgres_that_is_too_old(context: Context, major: int) -> None:
    with postgres_server(major) as dsn:
        database = Database(dsn)
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        assert code_of(lambda: source_check.check(dsn)) == "SOURCE_VERSION"
        with pytest.raises(HeadraceError) as caught:
            source.add(context, NAME, dsn, settings=BEAT)
        assert caught.value.code == "SOURCE_VERSION"
        assert f"Postgres {major}." in caught.value.message
        assert caught.value.hint == "Use Postgres 14 or newer."
        assert left_by_source(context, database, NAME) == {}


def test_a_standby(context: Context) -> None:
    with pair() as servers:
        Database(servers.primary.dsn).run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        standby = Database(servers.standby.dsn)
        until(lambda: standby.value("SELECT count(*) FROM pg_class WHERE relname = 't'"))
        errors = [one for one in source_check.check(standby.dsn) if one.severity is Severity.ERROR]
        assert [one.code for one in errors] == ["SOURCE_STANDBY"]
        assert "primary" in errors[0].hint
        assert code_of(lambda: source.add(context, NAME, standby.dsn, settings=BEAT)) == "SOURCE_STANDBY"
        assert left_by_source(context, standby, NAME) == {}
        source.add(context, NAME, servers.primary.dsn, settings=BEAT)
        assert [entry.name for entry in Registry(context.registry).sources()] == [NAME]
        source.remove(context, NAME)
