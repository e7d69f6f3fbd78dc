"""Two databases of one server, each with a source of the same name: neither touches the other's slot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from connectors.base import Left
from connectors.postgres import PostgresSource
from headrace.control import lag, recover, source
from headrace.control.check_again import check_again
from headrace.control.context import Context
from headrace.control.entries import RecoveryEntry
from headrace.control.gap import gap_error, start_over
from headrace.control.lag import State
from headrace.control.recovery.ready import refuse_unready
from headrace.control.registry import Registry
from headrace.model.errors import SourceError
from headrace.model.finding import Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.registered import lonely, register
from tests.support.servers import MAJORS, postgres_server

pytestmark = [pytest.mark.stack, pytest.mark.deep]

T = TableId("public", "t")
MADE = "SELECT pg_create_logical_replication_slot('headrace_shop', 'pgoutput')"
SLOT = "SELECT database::text, active FROM pg_replication_slots WHERE slot_name = 'headrace_shop'"
OURS = """SELECT (SELECT count(*) FROM pg_publication)
               + (SELECT count(*) FROM pg_namespace WHERE nspname = 'headrace')"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server(MAJORS[0]) as dsn:
        yield dsn


@pytest.fixture
def prod(server: str) -> Iterator[Database]:
    with fresh_database(server, "prod") as made:
        made.run("CREATE TABLE t (id int PRIMARY KEY)")
        yield made


@pytest.fixture
def staging(server: str) -> Iterator[Database]:
    with fresh_database(server, "staging") as made:
        made.run("CREATE TABLE t (id int PRIMARY KEY)")
        yield made


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return lonely(tmp_path)


@contextmanager
def read(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """Read from the slot, as a connector does."""
    session: Any = psycopg.connect(database.dsn, replication="database", autocommit=True)
    try:
        began = session.pgconn.exec_(
            b"START_REPLICATION SLOT headrace_shop LOGICAL 0/0"
            b" (proto_version '1', publication_names 'headrace_shop')"
        )
        assert began.status == psycopg.pq.ExecStatus.COPY_BOTH, began.error_message
        yield session
    finally:
        session.close()


def test_a_name_that_another_database_of_the_server_has_is_refused_without_a_statement(
    context: Context, prod: Database, staging: Database
) -> None:
    here = PostgresSource(prod.dsn)
    capture = register(context, "shop", prod.dsn, T)
    staging.run(MADE)
    with pytest.raises(SourceError) as idle:
        here.refuse_taken(capture)
    assert idle.value.code == "SOURCE_SLOT_TAKEN"
    assert "database staging, which nobody uses now" in idle.value.message
    with read(staging), pytest.raises(SourceError) as busy:
        here.refuse_taken(capture)
    assert "database staging, which process" in busy.value.message
    assert {told.value.hint for told in (idle, busy)} == {"Choose another source name."}
    with pytest.raises(SourceError) as own:
        PostgresSource(staging.dsn).refuse_taken(capture)
    staging.run(own.value.hint.partition("any more: ")[2])
    assert staging.run(SLOT) == []
    here.teardown(capture)


def test_a_source_whose_name_another_database_has_is_not_recovered_but_removed(
    context: Context, prod: Database, staging: Database
) -> None:
    """What reads from the other's slot goes on all the while; nothing of ours is given up for nothing."""
    capture = register(context, "shop", prod.dsn, T)
    registry = Registry(context.registry)
    staging.run(MADE)
    with read(staging) as other:
        hold = PostgresSource(prod.dsn).hold(capture)
        assert (hold.lost, hold.elsewhere) == (
            "the slot headrace_shop is that of database staging, not of database prod",
            "database staging",
        )
        remedy = "headrace source remove shop  # then add it again under another name"
        assert start_over("shop", hold, []) == remedy
        assert gap_error(context, registry.source("shop"), hold.lost).hint == remedy
        with pytest.raises(SourceError) as caught:
            recover.recover(context, "shop")
        assert (caught.value.code, caught.value.hint) == ("SOURCE_SLOT_TAKEN", remedy)
        (checked,) = [one for one in check_again(context, "shop") if one.severity is Severity.ERROR]
        assert (checked.code, checked.hint) == ("SOURCE_SLOT_TAKEN", remedy)
        assert prod.value(OURS) == 2
        with registry.begin() as session:
            assert session.get(RecoveryEntry, "shop") is None
        assert registry.source("shop").gap is None
        # Pasted by somebody who was told to leave the database, and carried out by the command.
        for statement in PostgresSource(prod.dsn).leftovers(capture)[0].split("; "):
            prod.run(statement)
        left = source.remove(context, "shop", leave_connect=True)
        assert left == Left(apart=left.apart)
        assert prod.value(OURS) == 0
        assert staging.run(SLOT) == [("staging", True)]
        assert other.pgconn.status == psycopg.pq.ConnStatus.OK
        assert registry.sources() == []


def test_a_slot_of_our_own_database_goes_with_the_session_that_holds_it(
    context: Context, prod: Database, staging: Database
) -> None:
    capture = register(context, "shop", prod.dsn, T)
    prod.run(MADE)
    with read(prod):
        assert PostgresSource(prod.dsn).hold(capture).elsewhere == ""
        assert PostgresSource(prod.dsn).teardown(capture) == Left()
    assert staging.run(SLOT) == []


def test_a_physical_slot_of_that_name_is_no_database_s(context: Context, prod: Database) -> None:
    capture = register(context, "shop", prod.dsn, T)
    prod.run("SELECT pg_create_physical_replication_slot('headrace_shop')")
    here = PostgresSource(prod.dsn)
    try:
        assert here.hold(capture).elsewhere == "no database"
        with pytest.raises(SourceError) as caught:
            here.refuse_taken(capture)
        assert "of no database" in caught.value.message
        assert here.teardown(capture) == Left()
        assert len(prod.run(SLOT)) == 1
    finally:
        prod.run("SELECT pg_drop_replication_slot('headrace_shop')")


@pytest.mark.parametrize("aside", [False, True])
def test_a_database_made_anew_is_not_taken_for_the_one_of_its_name(
    context: Context, server: str, prod: Database, aside: bool
) -> None:
    """Dropped, or put aside: a copy has its name, cluster, tables' numbers and all that was in them.

    A slot is of one database by number, and goes with it. So no proof but the slot is needed.
    """
    capture = register(context, "shop", prod.dsn, T)
    number = "SELECT 't'::regclass::oid::int"
    prod.run(MADE)
    known = prod.value(number)
    there = PostgresSource(prod.dsn).watch(capture)
    facts = there.look({}).facts
    there.close()
    Database(server).run(
        "CREATE DATABASE copy TEMPLATE prod",
        "ALTER DATABASE prod RENAME TO former" if aside else "DROP DATABASE prod",
        "ALTER DATABASE copy RENAME TO prod",
    )
    try:
        assert (prod.value(number), prod.value(OURS)) == (known, 2)
        here = PostgresSource(prod.dsn)
        looks = here.watch(capture)
        sight = looks.look(facts)
        looks.close()
        assert (sight.troubles, sight.back) == ((), ""), "by nothing else is it told"
        (told,) = lag.measure(context).sources
        assert told.state is State.RESYNC_REQUIRED
        if aside:
            assert told.reason.startswith("the slot headrace_shop is that of database former, not of")
            assert told.remedy.startswith("headrace source remove shop")
            return
        assert told.reason.startswith("the slot does not exist")
        assert told.remedy == "headrace recover shop"
        refuse_unready(context, Registry(context.registry).source("shop"))
        assert here.teardown(capture) == Left()
        here.setup(capture)
        prod.run(MADE)
        assert not here.hold(capture).lost
        assert Registry(context.registry).source("shop").gap == "the slot does not exist", "what was lost is"
    finally:
        if aside:
            Database(server).run(
                "ALTER DATABASE prod RENAME TO copy",
                "ALTER DATABASE former RENAME TO prod",
                "DROP DATABASE copy",
            )
