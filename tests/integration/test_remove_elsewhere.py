"""A source is removed while its address leads to a server that cannot let go of its slot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.control import source
from headrace.control.context import Context
from headrace.control.entries import SourceEntry
from headrace.control.registry import Registry
from headrace.model.errors import SourceError
from headrace.model.schema import TableId
from tests.support.database import Database
from tests.support.registered import lonely, register
from tests.support.servers import postgres_server
from tests.support.standby import Pair, pair
from tests.support.waiting import until

pytestmark = [pytest.mark.stack, pytest.mark.deep]

T = TableId("public", "t")
NAME = "headrace_shop"
SLOTS = f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{NAME}'"
GOES_ON = f"SELECT pg_replication_slot_advance('{NAME}', pg_current_wal_lsn())"
OURS = """SELECT (SELECT count(*) FROM pg_publication)
               + (SELECT count(*) FROM pg_namespace WHERE nspname = 'headrace')"""


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with pair() as made:
        Database(made.primary.dsn).run("CREATE TABLE t (id int PRIMARY KEY)")
        yield made


@pytest.fixture
def primary(servers: Pair) -> Iterator[Database]:
    made = Database(servers.primary.dsn)
    yield made
    made.run(
        f"SELECT pg_drop_replication_slot('{NAME}') FROM pg_replication_slots WHERE slot_name = '{NAME}'"
    )
    made.run(f"DROP PUBLICATION IF EXISTS {NAME}", "DROP SCHEMA IF EXISTS headrace CASCADE")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return lonely(tmp_path)


def added(context: Context, primary: Database, *, failover: bool = False) -> None:
    """Have a source on the primary, with its slot."""
    register(context, "shop", primary.dsn, T)
    with Registry(context.registry).begin() as session:
        entry = session.get_one(SourceEntry, "shop")
        entry.system = primary.value("SELECT system_identifier::text FROM pg_control_system()")
    primary.run(f"SELECT pg_create_logical_replication_slot('{NAME}', 'pgoutput', failover => {failover})")


def leads_to(context: Context, dsn: str) -> None:
    with Registry(context.registry).begin() as session:
        session.get_one(SourceEntry, "shop").address = dsn


def refused(context: Context) -> SourceError:
    with pytest.raises(SourceError) as caught:
        source.remove(context, "shop", leave_connect=True)
    assert [entry.name for entry in Registry(context.registry).sources()] == ["shop"]
    return caught.value


@pytest.mark.parametrize("failover", [False, True])
def test_a_slot_is_not_called_gone_by_a_standby(
    context: Context, servers: Pair, primary: Database, failover: bool
) -> None:
    """Whether the standby has the slot, too, or not; what is told is done on the primary."""
    standby = Database(servers.standby.dsn)
    added(context, primary, failover=failover)
    # The standby keeps a slot for good once that has gone on, as a connector's does.
    until(lambda: not failover or (primary.run(GOES_ON), servers.keeps(NAME))[1])
    until(lambda: standby.value(OURS) == 2)
    leads_to(context, standby.dsn)
    error = refused(context)
    assert error.code == "SOURCE_STANDBY"
    assert (primary.value(SLOTS), primary.value(OURS)) == (1, 2)
    drop, again = (line.partition(": ")[2] for line in error.hint.splitlines()[1:])
    assert again == "headrace source remove shop --leave-connect --leave-database"
    left = source.remove(context, "shop", leave_connect=True, leave_database=True)
    assert Registry(context.registry).sources() == []
    primary.run(*drop.removesuffix(";").split("; "))
    assert primary.value(SLOTS) == 0
    primary.run(*(one for text in left.statements for one in text.removesuffix(";").split("; ")))
    assert primary.value("SELECT count(*) FROM pg_publication") == 0


def test_a_slot_is_not_called_gone_by_another_cluster(context: Context, primary: Database) -> None:
    """By one that was restored from a dump, for instance; where the address leads home again, all goes."""
    added(context, primary)
    with postgres_server(18) as other:
        Database(other).run("CREATE TABLE t (id int PRIMARY KEY)")
        leads_to(context, other)
        error = refused(context)
    assert error.code == "SOURCE_ANOTHER_CLUSTER"
    assert f"pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{NAME}'" in (
        error.hint
    )
    assert "headrace source remove shop --leave-connect --leave-database" in error.hint
    leads_to(context, primary.dsn)
    assert source.remove(context, "shop", leave_connect=True).statements == ()
    assert (primary.value(SLOTS), primary.value(OURS)) == (0, 0)
