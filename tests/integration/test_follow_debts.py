"""What followers owe is read anew by itself, and once: a person's abort ends it, as does a question."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.config.pipeline import SchemaPolicy
from headrace.control import lag, source
from headrace.control.registry import Registry, ResnapshotEntry
from headrace.control.runs.repository import run_of
from tests.support.mirror import Mirror, mirrored
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.turn import begun, turn_kept
from tests.support.waiting import stays, until

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("honest"),
]

NAME = "owing"
LOST = 400
"""So many rows go unseen at a time: more than a run removes without being told to."""
AGAIN_S = 15.0
"""A follower that has something to do is begun again within less."""


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        NAME,
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in ("things", "others", "goes")),
        "INSERT INTO things SELECT i, 'v' || i FROM generate_series(1, 100) i",
        "INSERT INTO others SELECT i, 'v' || i FROM generate_series(1, 50) i",
        policies={"search": SchemaPolicy.EVOLVE},
    ) as made:
        made.settle()
        yield made


def is_owing(mirror: Mirror) -> bool:
    return (mirror.context.run / f"follow-{NAME}.json").exists()


def told(mirror: Mirror, table: str = "things") -> set[tuple[lag.State, str]]:
    """Return what lag says of a table in each sink, and what mends it."""
    tables = lag.measure(mirror.context).tables
    return {(found.state, found.remedy) for found in tables if found.table == f"public.{table}"}


def done(mirror: Mirror, command: str) -> None:
    carry_out(command, mirror.stack.home.root, mirror.database.run)


def until_begun(mirror: Mirror, before: int) -> ResnapshotEntry:
    until(lambda: len(begun(mirror)) > before)
    return begun(mirror)[0]


def assert_equal(mirror: Mirror, table: str, column: str) -> None:
    mirror.settle()
    wanted = {str(key): value for key, value in mirror.database.run(f"SELECT id, {column} FROM {table}")}
    for name, rows in mirror.stored(table).items():
        assert {key: row.get(column) for key, row in rows.items()} == wanted, name


def test_a_followers_run_that_a_person_aborts_is_not_begun_again(mirror: Mirror) -> None:
    before = len(begun(mirror))
    with turn_kept(mirror.context, NAME):
        mirror.database.run("ALTER TABLE things ADD COLUMN a int DEFAULT 1")
        run = until_begun(mirror, before)
        assert is_owing(mirror)
        done(mirror, f"headrace resnapshot abort {run.id}")
        until(lambda: run_of(Registry(mirror.context.registry), run.id).phase == "aborted")
    until(lambda: not is_owing(mirror))
    stays(lambda: len(begun(mirror)) == before + 1, AGAIN_S, why=lambda: [r.id for r in begun(mirror)])
    assert told(mirror) == {(lag.State.RESYNC_REQUIRED, f"headrace resnapshot {NAME} public.things")}
    done(mirror, f"headrace resnapshot {NAME} public.things")
    assert_equal(mirror, "things", "a")

    # Nothing is lacking when a column goes, but where its values are to go, too.
    with turn_kept(mirror.context, NAME):
        mirror.database.run("ALTER TABLE things DROP COLUMN a")
        run = until_begun(mirror, before + 1)
        done(mirror, f"headrace resnapshot abort {run.id}")
        until(lambda: run_of(Registry(mirror.context.registry), run.id).phase == "aborted")
    until(lambda: not is_owing(mirror))
    again = f"headrace resnapshot {NAME} public.things"
    unread = {(lag.State.RESYNC_REQUIRED, again), (lag.State.STREAMING, "")}
    until(lambda: told(mirror) == unread, why=lambda: told(mirror))
    done(mirror, again)
    assert_equal(mirror, "things", "v")


def test_who_refreshes_before_a_follower_does_takes_old_values_away_too(mirror: Mirror) -> None:
    mirror.database.run("ALTER TABLE things ADD COLUMN brief int DEFAULT 6")
    until(lambda: all(row.get("brief") == 6 for row in mirror.stored("things")[f"{NAME}search"].values()))
    mirror.settle()
    mirror.database.run("ALTER TABLE things DROP COLUMN brief")
    done(mirror, f"headrace source refresh {NAME}")
    mirror.settle()
    left = [key for key, row in mirror.stored("things")[f"{NAME}search"].items() if "brief" in row]
    assert left == []


def test_a_followers_run_that_asks_is_waited_for_by_nobody(mirror: Mirror) -> None:
    before = len(begun(mirror))
    mirror.database.run(f"INSERT INTO things SELECT i, 'goes' FROM generate_series(10001, {10000 + LOST}) i")
    mirror.settle()
    with turn_kept(mirror.context, NAME):
        mirror.database.run("ALTER TABLE things ADD COLUMN b int DEFAULT 2")
        run = until_begun(mirror, before)
        mirror.database.run(
            f"ALTER PUBLICATION headrace_{NAME} DROP TABLE things",
            "DELETE FROM things WHERE id > 10000",
            f"ALTER PUBLICATION headrace_{NAME} ADD TABLE things",
        )
    until(lambda: run_of(Registry(mirror.context.registry), run.id).phase == "unfinished")
    until(lambda: not is_owing(mirror))
    allowed = f"headrace resnapshot resume {run.id} --sweep-many"
    until(lambda: told(mirror) == {(lag.State.DEGRADED, allowed)}, why=lambda: told(mirror))
    stays(lambda: len(begun(mirror)) == before + 1, AGAIN_S, why=lambda: [r.id for r in begun(mirror)])
    done(mirror, allowed)
    assert_equal(mirror, "things", "b")


def test_a_table_that_is_gone_keeps_no_other_from_being_read(mirror: Mirror) -> None:
    before = len(begun(mirror))
    with turn_kept(mirror.context, NAME):
        mirror.database.run(
            "BEGIN; ALTER TABLE goes ADD COLUMN c int DEFAULT 3;"
            " ALTER TABLE others ADD COLUMN c int DEFAULT 3; COMMIT"
        )
        run = until_begun(mirror, before)
        mirror.database.run("DROP TABLE goes")
    until(lambda: run_of(Registry(mirror.context.registry), run.id).phase == "completed")
    until(lambda: not is_owing(mirror))
    until(lambda: {state for state, _ in told(mirror, "others")} == {lag.State.STREAMING})
    gone = f"headrace source tables remove {NAME} public.goes"
    until(lambda: {remedy for _, remedy in told(mirror, "goes")} == {gone}, why=lambda: told(mirror, "goes"))
    done(mirror, gone)
    assert_equal(mirror, "others", "c")
    mirror.database.run("ALTER TABLE others ADD COLUMN d int DEFAULT 4")
    until(lambda: "d" in mirror.schema("others").by_name)
    until(lambda: not is_owing(mirror))
    assert_equal(mirror, "others", "d")


def test_a_recovery_and_a_removal_leave_nothing_that_is_owed(mirror: Mirror) -> None:
    """The last of this file: it removes the source."""
    before = len(begun(mirror))
    with turn_kept(mirror.context, NAME):
        mirror.database.run("ALTER TABLE things ADD COLUMN d int DEFAULT 4")
        until_begun(mirror, before)
        assert is_owing(mirror)
        done(mirror, f"headrace recover {NAME}")
    assert not is_owing(mirror)
    assert_equal(mirror, "things", "d")
    stays(lambda: len(begun(mirror)) == before + 1, AGAIN_S, why=lambda: [r.id for r in begun(mirror)])

    with turn_kept(mirror.context, NAME):
        mirror.database.run("ALTER TABLE things ADD COLUMN e int DEFAULT 5")
        until(lambda: is_owing(mirror))
        for entry in Registry(mirror.context.registry).sinks(NAME):
            done(mirror, f"headrace sink remove {entry.name} --purge")
        source.remove(mirror.context, NAME)
    assert not is_owing(mirror)
