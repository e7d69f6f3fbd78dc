"""A source is recovered whose tables are not what they were: of other types, or gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.control import lag, recover, sink, source
from headrace.control.connect import Connect
from headrace.control.registry import Registry
from tests.support.mirror import KINDS, Mirror, mirrored, store_settings
from tests.support.remedy import bare, carry_out, refused
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
        "CREATE TABLE parts (id int PRIMARY KEY)",
        "INSERT INTO things SELECT i, date '2024-02-29' + i FROM generate_series(1, 50) i",
        "INSERT INTO goes SELECT generate_series(1, 5)",
        "INSERT INTO parts SELECT generate_series(1, 5)",
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
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0
    assert "SOURCE_TABLE_MISSING" in done.output
    hint = "headrace source tables remove shape public.goes"
    assert hint in bare(done.output)
    carry_out(hint, mirror.stack.home.root, mirror.database.run)
    carry_out(remedy(mirror), mirror.stack.home.root, mirror.database.run)
    mirror.settle()
    assert {rows["1"]["at"] for rows in mirror.stored("things").values()} == {1924992000000000}


def test_a_table_of_another_key_is_taken_out_before_the_recovery_and_in_after_it(mirror: Mirror) -> None:
    mirror.database.run(
        "ALTER TABLE parts DROP CONSTRAINT parts_pkey, ADD COLUMN part int NOT NULL DEFAULT 0",
        "ALTER TABLE parts ADD PRIMARY KEY (id, part)",
    )
    lose_the_slot(mirror)
    home = mirror.stack.home.root
    told = refused(home, *remedy(mirror).split()[1:])
    assert told["code"] == "SOURCE_KEY_CHANGED"
    commands = told["hint"].split(" && ")
    assert [command.split()[1] for command in commands] == ["source", "recover", "source"]
    for command in commands:
        carry_out(command, home, mirror.database.run)
    mirror.database.run("INSERT INTO parts VALUES (1, 1)")
    mirror.settle()
    assert {len(rows) for rows in mirror.stored("parts").values()} == {6}
    assert {len(rows) for rows in mirror.stored("things").values()} == {51}
    carry_out("headrace source tables remove shape public.parts --purge", home, mirror.database.run)


def test_a_table_of_another_key_keeps_a_source_from_being_recovered_until_it_is_added_anew(
    mirror: Mirror,
) -> None:
    """The last of this file: it removes the source, and adds it anew."""
    mirror.database.run(
        "ALTER TABLE things DROP CONSTRAINT things_pkey, ADD COLUMN part int NOT NULL DEFAULT 0",
        "ALTER TABLE things ADD PRIMARY KEY (id, part)",
    )
    lose_the_slot(mirror)
    home = mirror.stack.home.root
    told = refused(home, *remedy(mirror).split()[1:])
    assert (told["code"], told["message"]) == (
        "SOURCE_KEY_CHANGED", "The key of public.things is (id, part) now and was (id)."
    )  # fmt: skip
    assert not recover.plan(mirror.context, mirror.name).unfinished
    commands, _, then = told["hint"].partition("  # ")
    assert then == "then add them again"
    for command in commands.split(" && "):
        carry_out(command, home, mirror.database.run)
    assert mirror.name not in [entry.name for entry in Registry(mirror.context.registry).sources()]
    source.add(mirror.context, mirror.name, mirror.database.dsn)
    for short, kind in KINDS.items():
        settings = store_settings(mirror.stack, mirror.name)[kind]
        sink.add(mirror.context, f"{mirror.name}{short}", kind, settings=settings, source=mirror.name)
    mirror.settle()
    assert {len(rows) for rows in mirror.stored("things").values()} == {51}
