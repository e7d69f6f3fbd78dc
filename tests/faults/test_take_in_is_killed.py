"""`tables add` is killed after each step: the same command works, and nothing stays when all is removed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.control import sink, source, tables
from headrace.control.lag import measure
from headrace.control.registry import Registry
from headrace.model.schema import TableId
from tests.faults.test_add_is_killed import GOODS, killed
from tests.support.leftovers import left_by_sink, left_by_source
from tests.support.mirror import KINDS, Mirror, mirrored
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "widened"
ADD = f"headrace source tables add {NAME}"
STEPS = (
    "headrace.control.kafka:Kafka.create",
    "headrace.control.tables:next_epochs",
    "headrace.control.tables:create",
    "connectors.postgres:PostgresSource.publish",
    "headrace.control.tables:record",
    "headrace.control.tables:_register",
    "headrace.control.tables:tell_connector",
    "headrace.control.tables:begin",
    "headrace.control.tables:rewrite",
    "headrace.control.tables:_hand_over",
    "headrace.control.tables:start",
)


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(stack, NAME, *GOODS) as made:
        made.settle()
        yield made
        for entry in Registry(made.context.registry).sinks(NAME):
            sink.remove(made.context, entry.name, purge=True)
        source.remove(made.context, NAME)
        assert left_by_source(made.context, made.database, NAME) == {}
        lake = stack.endpoints.lake_path / NAME
        for short in KINDS:
            assert left_by_sink(made.context, stack, f"{NAME}{short}", NAME, lake) == {}


def begin(mirror: Mirror, table: str) -> None:
    mirror.database.run(
        f"CREATE TABLE {table} (id int PRIMARY KEY, name text)",
        f"INSERT INTO {table} SELECT i, 'n' || i FROM generate_series(1, 50) i",
    )


@pytest.mark.parametrize("number", range(len(STEPS)), ids=[step.rpartition(":")[2] for step in STEPS])
def test_the_same_command_works(mirror: Mirror, number: int) -> None:
    """Whichever step it has come to; the tables that are captured go on meanwhile."""
    table = f"more{number}"
    begin(mirror, table)
    killed(mirror.context, STEPS[number], "tables", NAME, table)
    mirror.database.run(
        f"UPDATE goods SET name = 'after {number}' WHERE id = 1",
        f"INSERT INTO {table} VALUES (51, 'n51')",
        f"DELETE FROM {table} WHERE id = 2",
    )
    measure(mirror.context)
    tables.take_in(mirror.context, NAME, [TableId("public", table)])
    mirror.settle()
    assert mirror.letters == []
    for rows in mirror.stored(table).values():
        assert {row["id"] for row in rows.values()} == {1, *range(3, 52)}
    for rows in mirror.stored("goods").values():
        assert {row["name"] for row in rows.values() if row["id"] == 1} == {f"after {number}"}


@pytest.mark.parametrize("number", range(len(STEPS)), ids=[step.rpartition(":")[2] for step in STEPS])
def test_it_is_never_given_again(mirror: Mirror, number: int) -> None:
    """The tables that are captured go on; that nothing of the others stays is shown when all is removed."""
    table = f"less{number}"
    begin(mirror, table)
    killed(mirror.context, STEPS[number], "tables", NAME, table)
    mirror.database.run(f"DELETE FROM {table} WHERE id = 2", f"INSERT INTO goods VALUES ({100 + number})")
    until(lambda: all(str(100 + number) in rows for rows in mirror.stored("goods").values()))
    told = {said.remedy for said in measure(mirror.context).tables if said.table == f"public.{table}"}
    wait = "headrace resnapshot wait "
    assert all(not one or one.startswith(wait) or one == f"{ADD} public.{table}" for one in told)
