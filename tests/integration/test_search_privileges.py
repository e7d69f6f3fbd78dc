"""An Elasticsearch whose security is on: what a user lacks is said before a sink is made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.config.source import SourceSettings
from headrace.control import sink, sink_check, source
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.model.errors import SinkError
from headrace.model.finding import Finding, Severity
from tests.support.database import fresh_database
from tests.support.guarded_search import Guarded, guarded_search
from tests.support.stack import RunningStack
from tests.support.waiting import settle

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(600)]

NAME = "guarded"
ALL = {"cluster": ["monitor"], "indices": [{"names": [f"{NAME}-*"], "privileges": ["all"]}]}


@pytest.fixture(scope="module")
def search() -> Iterator[Guarded]:
    with guarded_search() as server:
        yield server


@pytest.fixture
def settings(search: Guarded) -> dict[str, str]:
    return {"url": search.url, **search.user}


@pytest.fixture(autouse=True)
def _source(context: Context, stack: RunningStack) -> Iterator[None]:
    with fresh_database(stack.endpoints.postgres_dsn, NAME) as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
        source.add(context, NAME, database.dsn, settings=SourceSettings(heartbeat_ms=300))
        yield
        for entry in Registry(context.registry).sinks():
            sink.remove(context, entry.name, purge=True)
        source.remove(context, NAME)


def errors(context: Context, settings: dict[str, str]) -> list[Finding]:
    found = sink_check.check(context, NAME, "elasticsearch", settings=settings, source=NAME)
    return [one for one in found if one.severity is Severity.ERROR]


def test_what_a_user_lacks_is_told_with_the_role_that_has_it(
    context: Context, search: Guarded, settings: dict[str, str]
) -> None:
    few = {"indices": [{"names": [f"{NAME}-*"], "privileges": ["read", "write"]}]}
    on_indexes = f"create_index, manage on the indexes {NAME}-*"

    def told(**privileges: Any) -> Finding:
        search.give({**ALL, **privileges})
        (found,) = errors(context, settings)
        assert found.code == "ES_FORBIDDEN"
        return found

    assert told(cluster=[]).message == "The credentials of writer lack monitor on the cluster."
    assert told(**few).message == f"The credentials of writer lack {on_indexes}."
    found = told(cluster=[], **few)
    assert found.message == f"The credentials of writer lack monitor on the cluster and {on_indexes}."
    with pytest.raises(SinkError) as caught:
        sink.add(context, NAME, "elasticsearch", settings=settings, source=NAME)
    assert (caught.value.code, caught.value.hint) == (found.code, found.hint)

    search.give(json.loads(found.hint.partition(" /_security/role/headrace ")[2]))
    assert errors(context, settings) == []
    sink.add(context, NAME, "elasticsearch", settings=settings, source=NAME)
    settle(context)
    assert search.ask("GET", f"/{NAME}-public-t/_count")["count"] == 2
