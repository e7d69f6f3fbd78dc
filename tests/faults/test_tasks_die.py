"""The processes that apply one sink's rows die again and again; the other sinks show what is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from headrace.control import lag
from headrace.control.runner import engine_state
from tests.support.mirror import Mirror, mirrored
from tests.support.stack import RunningStack
from tests.support.waiting import until
from tests.support.writing import writing

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(500)]

ROWS = 60_000
"""So many that tasks apply them; a few are applied by the driver itself."""
MARKS = 12


def driver(mirror: Mirror) -> int:
    return int(engine_state(mirror.context.progress)["pid"])


@contextmanager
def dying(pid: int) -> Iterator[list[int]]:
    """Kill what a driver's tasks run in, as a system short of memory does; yield the pids."""
    killed: list[int] = []

    def kill(_: int) -> None:
        with suppress(psutil.Error):  # they end by themselves, too
            for forking in psutil.Process(pid).children(recursive=True):
                if "pyspark.worker" in forking.cmdline():  # Spark forks them from one of the same name
                    for one in forking.children():
                        one.kill()
                        killed.append(one.pid)

    with writing(kill, 0.3):
        yield killed


def behind(mirror: Mirror) -> set[str]:
    """Return the sinks that have records to apply."""
    return {
        table.sink.removeprefix(mirror.name)
        for table in lag.measure(mirror.context).tables
        if table.lag_records and table.sink.startswith(mirror.name)
    }


def test_the_death_of_one_sinks_tasks_keeps_no_other_waiting(stack: RunningStack) -> None:
    with mirrored(
        stack,
        "bereft",
        "CREATE TABLE items (id int PRIMARY KEY, name text)",
        "CREATE TABLE marks (id int PRIMARY KEY)",
    ) as mirror:
        mirror.settle()
        mirror.pause("search")
        mirror.database.run(f"INSERT INTO items SELECT i, 'n' || i FROM generate_series(1, {ROWS}) i")
        until(lambda: behind(mirror) == {"search"})
        before = driver(mirror)
        with dying(before) as killed:
            mirror.resume("search")
            until(lambda: bool(killed))
            for number in range(MARKS):
                mirror.database.run(f"INSERT INTO marks VALUES ({number})")
                wanted = {str(one) for one in range(number + 1)}
                until(
                    lambda wanted=wanted: all(  # type: ignore[misc]
                        rows.keys() == wanted for rows in mirror.stored("marks", but="bereftsearch").values()
                    )
                )
                assert "search" in behind(mirror)
            died = len(killed)
        assert died >= MARKS // 2
        mirror.settle()
        assert driver(mirror) == before
        assert {len(rows) for rows in mirror.stored("items").values()} == {ROWS}
        assert not mirror.letters
