"""Partitions that Postgres attaches without a word, and of which its log does not tell all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.model.finding import Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.servers import postgres_server

pytestmark = pytest.mark.stack

M = TableId("public", "m")
LEAF = '"leaf ""1"'
ROOT = "CREATE TABLE m (tenant int NOT NULL, id int NOT NULL, v text{}) PARTITION BY RANGE (id)"
ATTACHED = f"ALTER TABLE m ATTACH PARTITION {LEAF} FOR VALUES FROM (0) TO (100)"
KEYED = ROOT.format(", PRIMARY KEY (tenant, id)")
DEFERRABLE = (
    f"CREATE TABLE {LEAF} (tenant int, id int, v text, PRIMARY KEY (tenant, id) DEFERRABLE)",
    ATTACHED,
)
LEAVES = {
    "its key is deferrable": (KEYED, *DEFERRABLE),
    "and whole rows are told": (KEYED, *DEFERRABLE, f"ALTER TABLE {LEAF} REPLICA IDENTITY FULL"),
    "it has no key yet": (
        ROOT.format(""),
        f"CREATE TABLE {LEAF} PARTITION OF m FOR VALUES FROM (0) TO (100)",
        "ALTER TABLE ONLY m ADD PRIMARY KEY (tenant, id)",
    ),
}
WRITES = (
    "INSERT INTO m VALUES (1, 1, 'a'), (1, 2, 'b')",
    f"UPDATE {LEAF} SET v = 'c'",
    "UPDATE m SET v = 'd'",
    "DELETE FROM m",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgres_server(18) as dsn:
        yield Database(dsn)


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "leaves") as made:
        yield made


@pytest.mark.parametrize("how", LEAVES)
def test_a_partition_without_a_key_of_its_own_is_refused_until_it_has_one(
    database: Database, how: str
) -> None:
    database.run(*LEAVES[how])
    source = PostgresSource(database.dsn)
    (found,) = [one for one in source.preflight([M]) if one.severity is Severity.ERROR]
    assert found.code == "SOURCE_KEY_DEFERRABLE"
    assert LEAF in found.message
    database.paste(found.hint)
    assert [one for one in source.preflight([M]) if one.severity is Severity.ERROR] == []
    capture = Capture("leaves", tuple(source.catalogue([M])), "placeholder", "password")
    source.setup(capture)
    try:
        assert source.hold(capture).uncaptured == ()
        database.run(*WRITES)
    finally:
        source.teardown(capture)


@pytest.mark.parametrize(("identity", "code"), [("DEFAULT", "IDENTITY_REFUSED"), ("FULL", "KEY_NOT_UNIQUE")])
def test_one_that_is_attached_later_is_told_and_mended_as_it_is_told(
    database: Database, identity: str, code: str
) -> None:
    database.run(KEYED)
    source = PostgresSource(database.dsn)
    capture = Capture("leaves", tuple(source.catalogue([M])), "placeholder", "password")
    source.setup(capture)
    watch = source.watch(capture)
    try:
        facts = watch.look({}).facts
        database.run(*DEFERRABLE, f"ALTER TABLE {LEAF} REPLICA IDENTITY {identity}")
        watch.look(facts)
        seen = watch.look(facts)
        (told,) = [one for one in seen.troubles if one.code == code]
        database.run(*WRITES)  # it was taken out of the publication, if need be
        database.paste(told.statement)
        source.publish(capture)
        assert source.hold(capture).uncaptured == ()
        assert [one for one in watch.look(watch.look(facts).facts).troubles if one.lasts] == []
        database.run(*WRITES)
    finally:
        watch.close()
        source.teardown(capture)


def test_a_foreign_table_that_is_attached_later_is_told_and_taken_out_as_it_is_told(
    database: Database,
) -> None:
    """Nobody can ask it for its rows, nor for a replica identity; the other tables are looked at as ever."""
    database.run(
        "CREATE TABLE m (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE near PARTITION OF m FOR VALUES FROM (0) TO (100)",
        "CREATE FOREIGN DATA WRAPPER elsewhere",
        "CREATE SERVER far FOREIGN DATA WRAPPER elsewhere",
        f"CREATE FOREIGN TABLE {LEAF} (id int NOT NULL, v text) SERVER far",
    )
    source = PostgresSource(database.dsn)
    capture = Capture("leaves", tuple(source.catalogue([M])), "placeholder", "password")
    source.setup(capture)
    watch = source.watch(capture)
    try:
        facts = watch.look({}).facts
        database.run("ALTER TABLE m DROP CONSTRAINT m_pkey")  # else Postgres attaches none
        database.run(f"ALTER TABLE m ATTACH PARTITION {LEAF} FOR VALUES FROM (100) TO (200)")
        (told,) = [one for one in watch.look(facts).troubles if one.code == "TABLE_UNLOGGED"]
        assert "foreign" in told.reason
        database.run(told.statement)
        left = {one.code for one in watch.look(facts).troubles}
        assert "TABLE_UNLOGGED" not in left
        database.run("ALTER TABLE m ADD PRIMARY KEY (id)")
        source.publish(capture)
        assert [one for one in watch.look(facts).troubles if one.lasts] == []
    finally:
        watch.close()
        source.teardown(capture)
