"""What requests did to a store is remembered by a mark in its progress: a lower one says what it has lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config.pipeline import PipelineSpec
from headrace.model.position import Position
from sinks.base import REQUESTS
from sinks.memory import MemorySink
from spark_jobs import requested
from spark_jobs.checkpoint import put_aside
from spark_jobs.held import Holds, load_holds, nameless_row
from spark_jobs.requested import Requested
from spark_jobs.troubles import Troubles
from tests.support.small_table import SCHEMA, change, sink
from tests.unit.test_table_trouble import spec

PLACE = ("t", REQUESTS)


def version(offset: int) -> int:
    return Position(1, offset).version


def behind(**rows: int) -> Holds:
    return Holds({str(SCHEMA.table): {row: [version(offset)] for row, offset in rows.items()}})


def replayed(told: PipelineSpec, **rows: int) -> int:
    """Note that these rows lack nothing any more; return the mark."""
    return dict(Requested(told).applied(behind(**rows), Holds()))[PLACE]


def held(told: PipelineSpec) -> dict[str, list[int]]:
    return dict(load_holds(told.checkpoint).held.get(str(SCHEMA.table), {}))


def test_rows_are_behind_again_by_what_the_store_has_lost_and_no_more(tmp_path: Path) -> None:
    told = spec(tmp_path)
    first, second = replayed(told, a=5), replayed(told, b=6, c=7)
    assert first < second
    assert not Requested(told).look({PLACE: second})
    assert held(told) == {}
    assert Requested(told).look({PLACE: first})
    assert held(told) == {"b": [version(6)], "c": [version(7)]}
    assert Requested(told).look({})
    assert held(told).keys() == {"a", "b", "c"}
    assert put_aside(told.checkpoint) is None


def test_a_store_without_marks_has_lost_nothing_where_nothing_was_asked_for(tmp_path: Path) -> None:
    told = spec(tmp_path)
    assert Requested(told).places == []
    assert not Requested(told).look({})
    assert dict(Requested(told).applied(behind(a=5), behind(a=5))) == {}
    assert not (told.checkpoint / "requested.json").exists()


def test_another_target_or_life_has_nothing_to_lose(tmp_path: Path) -> None:
    told = spec(tmp_path)
    replayed(told, a=5)
    for update in ({"target": 1}, {"topic_id": "another"}):
        tables = tuple(table.model_copy(update=update) for table in told.tables)
        other = Requested(told.model_copy(update={"tables": tables}))
        assert other.places == []
        assert not other.look({})


def test_a_checkpoint_that_was_lost_goes_on_above_the_marks_it_has_forgotten(tmp_path: Path) -> None:
    told = spec(tmp_path)
    before = [replayed(told, a=5) for _ in range(3)][-1]
    (told.checkpoint / "requested.json").unlink()
    assert replayed(told, a=5) >= before - 2  # so many in one millisecond


def test_a_sweep_is_repeated_when_no_record_is_still_to_come(tmp_path: Path) -> None:
    told, target = spec(tmp_path), sink()
    target.apply(SCHEMA, [change(5, 1), change(25, 2)])
    replayed(told, a=5, b=25)
    mark = dict(Requested(told).swept("t", [version(20)]))[PLACE]
    asked = Requested(told)
    assert asked.look({})
    assert held(told) == {"b": [version(25)]}  # what the run has read anew lacks nothing
    assert asked.again(target, {"t"}, Troubles(told)) == {"t"}
    assert rows(target) == {"1", "2"}
    assert target.progress([PLACE]) == {}
    again = Requested(told)  # a driver that was started anew
    again.look({})
    assert again.again(target, set(), Troubles(told)) == set()
    assert rows(target) == {"2"}
    assert target.progress([PLACE])[PLACE] > mark
    assert not Requested(told).look(target.progress([PLACE]))


def test_of_very_many_letters_the_oldest_are_one_row_until_the_next_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requested, "_MOST", 3)
    told = spec(tmp_path)
    for offset in range(10):
        replayed(told, **{f"r{offset}": offset})
    Requested(told).look({})
    assert held(told).keys() == {nameless_row(0, 6), "r7", "r8", "r9"}
    swept = load_holds(told.checkpoint)
    swept.empty(str(SCHEMA.table), Position(1, 9))
    assert swept.settled().held == {str(SCHEMA.table): {"r9": [version(9)]}}


def rows(target: MemorySink) -> set[str]:
    return {stored.key for stored in target.scan(SCHEMA)}
