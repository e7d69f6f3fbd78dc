"""A column comes while a sink rests: it lacks nothing that is not told, and holds no other sink back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.control import lag
from headrace.control.opened import open_sink
from headrace.control.registry import Registry
from tests.support.mirror import Mirror, mirrored
from tests.support.stack import RunningStack
from tests.support.turn import begun, turn_kept
from tests.support.waiting import stays, until
from tests.support.watched import watched

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("honest"),
]

NAME = "resting"
OTHERS = ("search", "lake")


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        NAME,
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t SELECT generate_series(1, 50)",
    ) as made:
        made.settle()
        yield made


def values(mirror: Mirror, column: str, *, of: str) -> list[object]:
    """Return what a sink's store has in a column, each value once."""
    with closing(open_sink(Registry(mirror.context.registry).sink(f"{NAME}{of}"))) as opened:
        return list({found.row.get(column) for found in opened.scan(mirror.schema("t"))})


def state(mirror: Mirror, of: str) -> lag.State:
    return next(found.state for found in lag.measure(mirror.context).sinks if found.sink == f"{NAME}{of}")


def test_a_sink_that_rested_lacks_the_column_and_is_told_to_until_it_has_it(mirror: Mirror) -> None:
    """No record tells it of the column: nobody writes."""
    mirror.pause("cache")
    mirror.database.run("ALTER TABLE t ADD first int DEFAULT 7")
    until(lambda: all(values(mirror, "first", of=of) == [7] for of in OTHERS))
    until(lambda: {state(mirror, of) for of in OTHERS} == {lag.State.STREAMING})
    stays(lambda: {state(mirror, of) for of in OTHERS} == {lag.State.STREAMING}, 15)
    assert values(mirror, "first", of="cache") == [None]
    with watched(mirror.context, lambda: values(mirror, "first", of="cache") == [7]) as seen:
        mirror.resume("cache")
        until(lambda: values(mirror, "first", of="cache") == [7])
        mirror.settle()
    assert not seen.false_greens


def test_a_sink_that_comes_to_rest_amid_a_run_holds_no_other_back(mirror: Mirror) -> None:
    mirror.settle()
    before = len(begun(mirror))
    with turn_kept(mirror.context, NAME):
        mirror.database.run("ALTER TABLE t ADD second int DEFAULT 8")
        until(lambda: len(begun(mirror)) > before)
        mirror.pause("cache")
    until(lambda: all(values(mirror, "second", of=of) == [8] for of in OTHERS))
    mirror.database.run("ALTER TABLE t ADD third int DEFAULT 9")

    def arrives() -> bool:
        """Rows of before wait for the run; those that come once the column is followed have it."""
        mirror.database.run("INSERT INTO t (id) SELECT max(id) + 1 FROM t")
        return all(9 in values(mirror, "third", of=of) for of in OTHERS)

    until(arrives)
    mirror.resume("cache")
    mirror.settle()
    assert {of: values(mirror, "third", of=of) for of in (*OTHERS, "cache")} == {
        of: [9] for of in (*OTHERS, "cache")
    }
    assert values(mirror, "second", of="cache") == [8]
