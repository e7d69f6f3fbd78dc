"""A store cannot give a table its new shape, or a follower dies: every table is read anew all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.control import lag
from headrace.control.registry import Registry
from headrace.control.runner import ensure_engine, stop_engine
from headrace.control.runs import start as runs
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

NAME = "shapes"
SEARCH = f"{NAME}search"
AGAIN_S = 25.0
"""A follower that finds something to do is begun twice within less."""


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        NAME,
        "CREATE TABLE t (id int PRIMARY KEY, size int)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 50) i",
        "INSERT INTO u SELECT i FROM generate_series(1, 50) i",
    ) as made:
        made.settle()
        yield made


def told(mirror: Mirror, sink: str, table: str) -> tuple[lag.State, str]:
    """Return what lag says of a table in a sink, and what mends it."""
    tables = lag.measure(mirror.context).tables
    (found,) = [one for one in tables if (one.sink, one.table) == (sink, f"public.{table}")]
    return found.state, found.remedy


def queries(mirror: Mirror) -> dict[str, int]:
    """Return sink → when its query began."""
    names = [sink.name for sink in Registry(mirror.context.registry).sinks(NAME)]
    return {
        name: json.loads((mirror.context.progress / f"{name}.json").read_text())["started_ms"]
        for name in names
    }


def assert_equal(mirror: Mirror) -> None:
    """Fail unless status is green, and every store holds what the database does."""
    mirror.settle()
    for table in ("t", "u"):
        names = [column.name for column in mirror.schema(table).columns]
        listed = ", ".join(names)
        wanted = {str(row[0]): row for row in mirror.database.run(f"SELECT {listed} FROM {table}")}
        for sink, rows in mirror.stored(table).items():
            held = {key: tuple(row.get(name) for name in names) for key, row in rows.items()}
            assert held == wanted, (sink, table)


def test_a_target_that_refuses_is_made_anew_and_the_other_tables_are_read(mirror: Mirror) -> None:
    mirror.database.run(
        "BEGIN; ALTER TABLE t ADD a int DEFAULT 1, ALTER size TYPE bigint;"
        " ALTER TABLE u ADD b int DEFAULT 2; COMMIT",
        "INSERT INTO t VALUES (60, 5000000000, 6)",
        "INSERT INTO u VALUES (60, 6)",
    )
    until(lambda: "b" in mirror.schema("u").by_name)
    assert_equal(mirror)
    assert (mirror.stored("t")[SEARCH]["60"]["size"], mirror.stored("u")[SEARCH]["1"]["b"]) == (
        5_000_000_000,
        2,
    )
    assert not (mirror.context.run / f"follow-{NAME}.json").exists()


def test_a_drift_that_was_refused_stops_nothing_again_and_again(mirror: Mirror) -> None:
    """A person has ended the run that was to make the target anew."""
    assert_equal(mirror)
    before = len(begun(mirror))
    with turn_kept(mirror.context, NAME):
        mirror.database.run(
            "ALTER TABLE t ADD c int DEFAULT 3, ALTER size TYPE text",
            "INSERT INTO t VALUES (70, 'many', 7, 7)",
        )
        until(lambda: len(begun(mirror)) > before)
        run = begun(mirror)[0]
        runs.abort(mirror.context, run.id)
        until(lambda: run_of(Registry(mirror.context.registry), run.id).phase == "aborted")
    until(lambda: told(mirror, SEARCH, "t")[0] is lag.State.RESYNC_REQUIRED)
    until(lambda: told(mirror, SEARCH, "u")[0] is lag.State.STREAMING)
    running = queries(mirror)
    stays(lambda: queries(mirror) == running and len(begun(mirror)) == before + 1, AGAIN_S)
    # What changes then is followed as ever.
    mirror.database.run("ALTER TABLE u ADD d int DEFAULT 4")
    until(lambda: told(mirror, SEARCH, "u")[0] is not lag.State.STREAMING)
    until(lambda: told(mirror, SEARCH, "u")[0] is lag.State.STREAMING, 60.0)
    assert mirror.stored("u")[SEARCH]["1"]["d"] == 4
    carry_out(told(mirror, SEARCH, "t")[1], mirror.stack.home.root, mirror.database.run)
    assert_equal(mirror)


def test_what_a_follower_that_was_killed_has_registered_is_read_anew(mirror: Mirror, tmp_path: Path) -> None:
    assert_equal(mirror)
    context, log = mirror.context, tmp_path / "log"
    log.touch()
    stop_engine(context.run)
    with pytest.MonkeyPatch.context() as armed:
        armed.setenv("HEADRACE_FAILPOINTS", "follow.registered=kill")
        armed.setenv("HEADRACE_FAILPOINTS_LOG", str(log))
        ensure_engine(context)
    try:
        mirror.database.run("ALTER TABLE u ADD e int DEFAULT 5")
        until(lambda: log.read_text().endswith("\n"))
        until(lambda: mirror.stored("u")[SEARCH]["1"].get("e") == 5)
        assert_equal(mirror)
    finally:
        stop_engine(context.run)
        ensure_engine(context)
