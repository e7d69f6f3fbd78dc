"""Somebody writes to the documents of a table: what Postgres changes afterwards is shown all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from headrace.control.runs import start as runs
from headrace.model.schema import TableId
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client
from tests.support.mirror import Mirror, mirrored
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

INSERT = "INSERT INTO kinds SELECT i, 'v' || i FROM generate_series(1, 9) i"


@pytest.fixture
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(stack, "others", "CREATE TABLE kinds (id int PRIMARY KEY, v text)", INSERT) as opened:
        opened.settle()
        yield opened


def write(mirror: Mirror, *numbers: int) -> None:
    """Write often to some documents, as curl does it, and put another one beside them."""
    config = ElasticsearchSink.Config(url=mirror.stack.endpoints.elasticsearch_url)
    with closing(Client(config)) as client:
        for number in numbers:
            for n in range(20):
                target = f"/others-public-kinds/_update/{number}"
                client.request("POST", target, {"doc": {"v": f"x{n}"}})
        client.request("PUT", "/others-public-kinds/_doc/77", {"id": 77, "v": "theirs"})


def search(mirror: Mirror) -> dict[str, Any]:
    return {key: row["v"] for key, row in mirror.stored("kinds")["otherssearch"].items()}


def rows(mirror: Mirror) -> dict[str, Any]:
    return {str(key): value for key, value in mirror.database.run("SELECT id, v FROM kinds")}


@pytest.mark.deep
@pytest.mark.unlooked
def test_what_somebody_writes_to_documents_gives_way_to_what_postgres_changes(mirror: Mirror) -> None:
    """Until then it stays, and ``lag`` does not see it: docs/guarantees.md says so."""
    mirror.database.run("UPDATE kinds SET v = 'before' WHERE id <= 3")
    mirror.settle()
    write(mirror, 1, 2, 3)
    mirror.database.run("UPDATE kinds SET v = 'after' WHERE id = 1", "DELETE FROM kinds WHERE id = 2")
    mirror.settle()
    found = search(mirror)
    assert {key: found.get(key) for key in ("1", "2", "3", "77")} == {
        "1": "after",
        "2": None,
        "3": "x19",  # Postgres has not changed it again
        "77": "theirs",
    }

    runs.resnapshot(mirror.context, "others", tables=[TableId("public", "kinds")])
    mirror.settle()
    assert search(mirror) == rows(mirror)

    write(mirror, 4, 5)
    mirror.database.run("TRUNCATE kinds")
    mirror.settle()
    assert search(mirror) == {}

    mirror.database.run(INSERT)
    mirror.settle()
    assert search(mirror) == rows(mirror)
    assert not mirror.letters
