"""A worker of Connect that lacks what a source needs is told as that, before anything is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.control import source, source_check
from headrace.control.context import Context
from headrace.model.errors import StackError
from tests.support.bare_worker import bare_worker
from tests.support.database import Database, fresh_database
from tests.support.leftovers import left_by_source
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "bare"


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, NAME) as made:
        made.run("CREATE TABLE t (id int PRIMARY KEY)")
        yield made


def test_a_worker_without_the_connector_is_told_before_anything_is_made(
    stack: RunningStack, context: Context, database: Database, tmp_path: Path
) -> None:
    with bare_worker(stack, tmp_path / "worker") as url:
        there = replace(context, connect_url=url)
        said = {one.code: one for one in source_check.check(database.dsn, place=(there, NAME))}
        assert "PostgresConnector" in said["CONNECT_LACKS_CONNECTOR"].message
        assert "BoundedJsonConverter" in said["CONNECT_LARGE_RECORDS"].message
        with pytest.raises(StackError) as caught:
            source.add(there, NAME, database.dsn)
        assert caught.value.code == "CONNECT_LACKS_CONNECTOR"
    assert not left_by_source(context, database, NAME)
