"""A run of two tables, one of whose targets refuses: the other is made right in every sink meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.control import lag
from headrace.control.registry import Registry, ResnapshotEntry
from headrace.control.runs import start as runs
from headrace.control.runs.repository import run_of
from headrace.control.verdicts import State
from headrace.model.errors import UsageError
from headrace.model.schema import TableId
from headrace.observe import pidfile
from tests.support.locked import redis_locked
from tests.support.mirror import KINDS, Mirror, mirrored
from tests.support.remedy import carry_out
from tests.support.remedy import refused as command_refused
from tests.support.search import Server
from tests.support.stack import RunningStack
from tests.support.turn import turn_kept
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(600)]

NAME = "hampered"
GOOD, BAD = "public.good", "public.bad"


@pytest.fixture
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        NAME,
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in ("good", "bad")),
        *(f"INSERT INTO {name} SELECT i, 'v' FROM generate_series(1, 30) i" for name in ("good", "bad")),
    ) as made:
        made.settle()
        yield made


def delete_untold(mirror: Mirror, table: str, row: int) -> None:
    mirror.database.run(
        f"ALTER PUBLICATION headrace_{NAME} DROP TABLE {table}",
        f"DELETE FROM {table} WHERE id = {row}",
        f"ALTER PUBLICATION headrace_{NAME} ADD TABLE {table}",
    )


@contextmanager
def refused(mirror: Mirror, table: str) -> Iterator[None]:
    """Have the search take no changes of a table while the block runs."""
    server = Server(mirror.stack.endpoints.elasticsearch_url)
    target = f"/{NAME}-public-{table}/_settings"
    server.ask("PUT", target, {"index.blocks.write": True})
    try:
        yield
    finally:
        server.ask("PUT", target, {"index.blocks.write": None})
        server.client.close()


def now(mirror: Mirror, run: ResnapshotEntry) -> ResnapshotEntry:
    return run_of(Registry(mirror.context.registry), run.id)


def states(mirror: Mirror, table: str) -> set[State]:
    return {told.state for told in lag.measure(mirror.context).tables if told.table == table}


def keys(mirror: Mirror, table: str) -> list[set[str]]:
    return [set(rows) for rows in mirror.stored(table).values()]


def test_a_table_that_refuses_keeps_no_other_of_its_run_from_being_healed(mirror: Mirror) -> None:
    sinks = [f"{NAME}{short}" for short in KINDS]
    for table in ("good", "bad"):
        delete_untold(mirror, table, 7)
    with refused(mirror, "bad"):
        run = runs.start(mirror.context, NAME)

        def others_swept() -> bool:
            swept = now(mirror, run).counts.get("swept", {})
            done = {(sink, table) for sink, tables in swept.items() for table in tables}
            return done == {(s, t) for s in sinks for t in (GOOD, BAD)} - {(f"{NAME}search", BAD)}

        until(others_swept, why=lambda: (now(mirror, run).counts, now(mirror, run).reason))
        until(lambda: states(mirror, GOOD) == {State.STREAMING}, why=lambda: lag.measure(mirror.context))
        assert keys(mirror, "good") == [{str(key) for key in range(1, 31) if key != 7}] * len(sinks)
        until(
            lambda: f"{NAME}search: {BAD}, " in now(mirror, run).reason, why=lambda: now(mirror, run).reason
        )
        assert now(mirror, run).phase == "applying"

        # The run is not at the table any more: another one is neither refused nor kept waiting.
        delete_untold(mirror, "good", 8)
        (good, bad) = (TableId("public", name) for name in ("good", "bad"))
        removed = runs.resnapshot(mirror.context, NAME, tables=[good])
        assert sorted((done.sink, done.removed) for done in removed) == sorted((sink, 1) for sink in sinks)
        with pytest.raises(UsageError) as busy:
            runs.start(mirror.context, NAME, tables=[bad])
        assert busy.value.code == "RESNAPSHOT_TABLE_BUSY"
        assert now(mirror, run).phase == "applying"
    assert runs.wait(mirror.context, run.id).phase == "completed"
    mirror.settle()
    assert keys(mirror, "good") == [{str(key) for key in range(1, 31) if key not in (7, 8)}] * len(sinks)
    assert keys(mirror, "bad") == [{str(key) for key in range(1, 31) if key != 7}] * len(sinks)


def test_a_store_that_lets_nobody_in_keeps_no_other_from_being_made_right(mirror: Mirror) -> None:
    delete_untold(mirror, "good", 9)
    with redis_locked(mirror.stack):
        run = runs.start(mirror.context, NAME, tables=[TableId("public", "good")])

        def others_swept() -> bool:
            swept: dict[str, object] = now(mirror, run).counts.get("swept", {})
            return {f"{NAME}search", f"{NAME}lake"} <= swept.keys()

        until(others_swept, why=lambda: (now(mirror, run).phase, now(mirror, run).reason))
    assert runs.wait(mirror.context, run.id, patient=True).phase == "completed"
    mirror.settle()
    assert keys(mirror, "good") == [{str(key) for key in range(1, 31) if key != 9}] * len(KINDS)


def test_a_run_whose_guardian_was_killed_goes_on_as_it_is_told(mirror: Mirror) -> None:
    home = mirror.stack.home.root
    delete_untold(mirror, "good", 11)
    with turn_kept(mirror.context, NAME):
        run = runs.start(mirror.context, NAME, tables=[TableId("public", "good")])
        guardian = pidfile.alive(mirror.context.run / "engine.pid")
        assert guardian is not None
        os.kill(guardian, signal.SIGKILL)
        told = command_refused(home, "resnapshot", "wait", run.id)
        assert told["code"] == "RESNAPSHOT_UNATTENDED"
    carry_out(told["hint"], home, mirror.database.run)
    mirror.settle()
    assert keys(mirror, "good") == [{str(key) for key in range(1, 31) if key != 11}] * len(KINDS)
