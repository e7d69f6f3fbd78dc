"""A source is recovered whose tables are not what they were: of other types, or gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.control import lag
from headrace.control.connect import Connect
from tests.support.mirror import Mirror, mirrored
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        "shape",
        "CREATE TABLE things (id int PRIMARY KEY, at date)",
        "CREATE TABLE goes (id int PRIMARY KEY)",
        "INSERT INTO things SELECT i, date '2024-02-29' + i FROM generate_series(1, 50) i",
        "INSERT INTO goes SELECT generate_series(1, 5)",
    ) as made:
        made.settle()
        yield made


def states(mirror: Mirror, table: str) -> set[lag.State]:
    return {one.state for one in lag.measure(mirror.context).tables if one.table == f"public.{table}"}


def lose_the_slot(mirror: Mirror) -> None:
    with Connect(mirror.context.connect_url) as connect:
        connect.stop("headrace_shape")
    reads = "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'headrace_shape' AND active"
    until(lambda: not mirror.database.run(reads))
    mirror.database.run("SELECT pg_drop_replication_slot('headrace_shape')")
    until(lambda: states(mirror, "things") == {lag.State.RESYNC_REQUIRED})


def remedy(mirror: Mirror) -> str:
    return next(one.remedy for one in lag.measure(mirror.context).sources if one.source == mirror.name)


def test_rows_are_decoded_by_the_types_that_the_columns_have_now(mirror: Mirror) -> None:
    """Read by the former type, the days since 1970 would be taken for microseconds, without a word."""
    mirror.database.run(
        "ALTER TABLE things ALTER at TYPE timestamp USING at + time '12:34'",
        "INSERT INTO things VALUES (100, '2030-01-01 01:02:03')",
    )
    until(lambda: states(mirror, "things") == {lag.State.RESYNC_REQUIRED}, why=lambda: remedy(mirror))
    lose_the_slot(mirror)
    assert remedy(mirror) == "headrace recover shape"
    carry_out(remedy(mirror), mirror.stack.home.root, mirror.database.run)
    for _ in range(3):  # a store that cannot give a column another type tells what makes a new target
        left = {
            one.remedy for one in lag.measure(mirror.context).tables if one.state is lag.State.RESYNC_REQUIRED
        }
        for found in left - {""}:
            carry_out(found, mirror.stack.home.root, mirror.database.run)
    mirror.settle()
    micros = "SELECT id::text, (extract(epoch FROM at) * 1000000)::bigint FROM things"
    wanted = {key: {"id": int(key), "at": at} for key, at in mirror.database.run(micros)}
    for name, rows in mirror.stored("things").items():
        assert rows == wanted, name


def test_a_table_that_is_gone_is_taken_out_of_a_source_that_is_to_be_recovered(mirror: Mirror) -> None:
    """Else each of three commands would name the next: recover, tables remove, resume."""
    mirror.database.run("DROP TABLE goes")
    lose_the_slot(mirror)
    mirror.database.run("UPDATE things SET at = '2031-01-01' WHERE id = 1")
    words = [*remedy(mirror).split()[1:], "--home", str(mirror.stack.home.root), "--json"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code != 0
    assert "SOURCE_TABLE_MISSING" in refused.output
    hint = "headrace source tables remove shape public.goes"
    assert hint in refused.output
    carry_out(hint, mirror.stack.home.root, mirror.database.run)
    carry_out(remedy(mirror), mirror.stack.home.root, mirror.database.run)
    mirror.settle()
    assert {rows["1"]["at"] for rows in mirror.stored("things").values()} == {1924992000000000}
