"""What an `add` that was killed before it had registered has made in the database goes by its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.control import source
from headrace.control.begun import Before, begin, making, noted
from headrace.control.capture import secret_of
from headrace.control.context import Context
from headrace.control.entries import BegunEntry
from headrace.control.registry import Registry
from headrace.model.errors import SourceError
from headrace.model.schema import TableId
from tests.support.database import Database
from tests.support.registered import lonely
from tests.support.servers import postgres_server

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "shop"
OURS = """SELECT (SELECT count(*) FROM pg_publication)
               + (SELECT count(*) FROM pg_namespace WHERE nspname = 'headrace')"""
SLOT = f"pg_create_logical_replication_slot('headrace_{NAME}', 'pgoutput')"


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgres_server(18) as dsn:
        Database(dsn).run("CREATE TABLE t (id int PRIMARY KEY)")
        yield Database(dsn)


def begun(place: Path, dsn: str) -> Context:
    """Return an installation in which an ``add`` was killed when it had set the database up."""
    context, here = lonely(place), PostgresSource(dsn)
    registry, secret = Registry(context.registry), secret_of(context, NAME)
    tables = tuple(here.catalogue([TableId("public", "t")]))
    empty = Capture(NAME, tables, "placeholder", secret.placeholder)
    capture = Capture(NAME, tables, "placeholder", secret.placeholder, system=here.hold(empty).system)
    begin(registry, capture, "postgres", here.address, Before())
    secret.store(here.password)
    making(registry, NAME)
    here.setup(capture)
    return context


def test_what_a_killed_add_has_made_in_the_database_goes(tmp_path: Path, server: Database) -> None:
    context = begun(tmp_path, server.dsn)
    assert server.value(OURS) == 2
    assert source.remove(context, NAME, leave_connect=True).statements == ()
    assert server.value(OURS) == 0
    assert noted(Registry(context.registry)) == {}
    assert not secret_of(context, NAME).path.exists()


def test_a_slot_that_somebody_made_since_stays_with_what_is_read_by_it(
    tmp_path: Path, server: Database
) -> None:
    context = begun(tmp_path, server.dsn)
    server.run(f"SELECT {SLOT}")
    source.remove(context, NAME, leave_connect=True)
    assert server.value(OURS) == 2
    server.run(f"SELECT pg_drop_replication_slot('headrace_{NAME}')")
    PostgresSource(server.dsn).teardown(Capture(NAME, (), "placeholder", "password"))
    assert server.value(OURS) == 0


def test_nothing_is_removed_from_another_cluster(tmp_path: Path, server: Database) -> None:
    """The address leads elsewhere by then, where somebody else has the name."""
    context = begun(tmp_path / "ours", server.dsn)
    with postgres_server(18) as other:
        Database(other).run("CREATE TABLE t (id int PRIMARY KEY)")
        begun(tmp_path / "theirs", other)
        registry = Registry(context.registry)
        with registry.begin() as session:
            found = session.get_one(BegunEntry, NAME)
            found.plan = {**found.plan, "address": other}
        with pytest.raises(SourceError) as caught:
            source.remove(context, NAME, leave_connect=True)
        assert caught.value.code == "SOURCE_ANOTHER_CLUSTER"
        assert Database(other).value(OURS) == 2
        with registry.begin() as session:
            found = session.get_one(BegunEntry, NAME)
            found.plan = {**found.plan, "address": server.dsn}
    source.remove(context, NAME, leave_connect=True)
    assert server.value(OURS) == 0
