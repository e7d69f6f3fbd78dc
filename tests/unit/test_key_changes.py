"""Rows whose key changes keep their large values, wherever batches end and whoever applies them."""

from __future__ import annotations

import contextlib
import random
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.model.change import Change, Op, Origin
from headrace.model.key import Key
from headrace.model.outcome import Outcome
from headrace.model.schema import TableSchema
from sinks.memory import MemorySink
from spark_jobs.carry import Carry
from spark_jobs.held import Holds
from spark_jobs.moves import Burial
from tests.support.small_table import SCHEMA, TABLE, apply, change, sink, state


def carry(folder: Path, begin: int) -> Carry:
    """Return what is carried for the records from an offset on."""
    return Carry(folder, {("t", 0): begin})


def moved(offset: int, old: int, new: int, lsn: int) -> list[Change]:
    """Return the two records of a key change whose large value ``b`` did not change."""
    halves = [change(offset, old, Op.DELETE), change(offset + 1, new, absent=frozenset({"b"}))]
    return [replace(half, origin=replace(half.origin, lsn=lsn)) for half in halves]


def test_a_row_that_changes_its_key_keeps_the_value_stored_under_the_old_one() -> None:
    target = sink()
    apply([change(0, 1, b="large")], target)
    report = apply(moved(1, 1, 2, lsn=9), target)
    assert not report.rejects
    assert state(target) == {"2": {"id": 2, "a": "a2", "b": "large"}}


def test_a_row_that_changes_its_key_twice_in_one_batch_keeps_it_too() -> None:
    target = sink()
    apply([change(0, 1, b="large")], target)
    hot = [*moved(1, 1, 2, lsn=9), change(3, 2, absent=frozenset({"b"})), *moved(4, 2, 3, lsn=11)]
    report = apply(hot, target)
    assert not report.rejects
    assert state(target) == {"3": {"id": 3, "a": "a5", "b": "large"}}


def test_a_row_that_another_engine_has_changed_since_the_batch_began_moves_with_its_value() -> None:
    """Two engines cut the same records into other batches, and one takes over from the other."""
    target = sink()
    apply([change(0, 1, b="large")], target)
    update = change(1, 1, absent=frozenset({"b"}))
    apply([update], target)
    report = apply([update, *moved(2, 1, 2, lsn=9), change(4, 2, absent=frozenset({"b"}))], target)
    assert not report.rejects
    assert state(target) == {"2": {"id": 2, "a": "a4", "b": "large"}}


def test_so_it_does_when_its_key_changes_twice() -> None:
    target = sink()
    apply([change(0, 1, b="large")], target)
    update = change(1, 1, absent=frozenset({"b"}))
    apply([update], target)
    report = apply([update, *moved(2, 1, 2, lsn=9), *moved(4, 2, 3, lsn=11)], target)
    assert not report.rejects
    assert state(target) == {"3": {"id": 3, "a": "a5", "b": "large"}}


@pytest.mark.parametrize("ends", [3, 1], ids=["to a third", "and back"])
def test_a_row_moves_on_with_its_value_from_where_a_shorter_batch_has_put_it(ends: int) -> None:
    """Two engines again: what the one has written lies under a key between this batch's first and last."""
    target = sink()
    apply([change(0, 1, b="large")], target)
    first = moved(1, 1, 2, lsn=9)
    apply(first, target)
    touched = change(3, 2, absent=frozenset({"b"}))
    apply([touched], target)
    report = apply([*first, touched, *moved(4, 2, ends, lsn=11)], target)
    assert not report.rejects
    assert state(target) == {str(ends): {"id": ends, "a": "a5", "b": "large"}}


def test_a_row_that_another_engine_moved_to_a_key_whose_row_was_deleted_before_keeps_its_value() -> None:
    target = sink()
    apply([change(0, 1, b="large")], target)
    before, move = [change(1, 2), change(2, 2, Op.DELETE)], moved(3, 1, 2, lsn=9)
    apply([*before, *move], target)
    report = apply([*before, *move, change(5, 2, absent=frozenset({"b"}))], target)
    assert not report.rejects
    assert state(target) == {"2": {"id": 2, "a": "a5", "b": "large"}}


def test_so_it_does_when_the_batch_ends_between_the_halves(tmp_path: Path) -> None:
    target = sink()
    apply([change(0, 1, b="large")], target)
    first, (delete, create) = moved(1, 1, 2, lsn=9), moved(3, 2, 1, lsn=11)
    apply(first, target)
    assert not apply([*first, delete], target, carry(tmp_path, 1)).rejects
    assert not apply([create], target, carry(tmp_path, 4)).rejects
    assert state(target) == {"1": {"id": 1, "a": "a4", "b": "large"}}


def test_a_row_that_moves_on_takes_nothing_from_one_that_had_the_key_before_it() -> None:
    target = sink()
    apply([change(0, 1, b="mine"), change(1, 2, b="another's")], target)
    batch = [change(2, 2, Op.DELETE), *moved(3, 1, 2, lsn=9), *moved(5, 2, 3, lsn=11)]
    for part in batch, batch[:1], batch[:3], batch:
        assert not apply(part, target).rejects
    assert state(target) == {"3": {"id": 3, "a": "a6", "b": "mine"}}


def test_a_value_set_in_the_same_batch_moves_with_the_row() -> None:
    target = sink()
    apply([change(0, 1, b="old")], target)
    apply([change(1, 1, b="new"), *moved(2, 1, 2, lsn=9)], target)
    assert state(target) == {"2": {"id": 2, "a": "a3", "b": "new"}}


def test_an_unrelated_delete_lends_no_values() -> None:
    target = sink()
    apply([change(0, 1, b="mine")], target)
    first, second = moved(1, 1, 2, lsn=9)
    stranger = replace(second, origin=replace(second.origin, lsn=10))
    report = apply([first, stranger], target)
    assert [reject["offset"] for reject in report.rejects] == [2]
    assert state(target) == {}


def test_a_key_change_that_comes_twice_in_one_batch_keeps_the_right_value() -> None:
    target = sink()
    apply([change(0, 1, b="mine"), change(1, 2, b="another's")], target)
    first = [change(2, 2, Op.DELETE), *moved(3, 1, 2, lsn=9), *moved(5, 2, 3, lsn=11)]
    report = apply([*first, *moved(7, 2, 3, lsn=11)], target)
    assert not report.rejects
    assert state(target) == {"3": {"id": 3, "a": "a8", "b": "mine"}}


def test_a_key_change_that_runs_again_takes_nothing_from_the_next_row_of_its_old_key() -> None:
    target = sink()
    apply([change(0, 1, b="mine")], target)
    batch = [*moved(1, 1, 2, lsn=9), change(3, 1, b="another's")]
    for _ in range(2):
        report = apply(batch, target)
        assert not report.rejects
        assert {key: row["b"] for key, row in state(target).items()} == {"1": "another's", "2": "mine"}


def test_a_partial_image_takes_nothing_from_a_row_that_was_deleted_before_it() -> None:
    target = sink()
    apply([change(0, 1, b="another's")], target)
    partial = change(3, 1, absent=frozenset({"b"}))
    report = apply([change(1, 1, Op.DELETE), partial], target)
    assert [(r["offset"], r["code"]) for r in report.rejects] == [
        (1, "PARTIAL_WITHOUT_ROW"),
        (3, "PARTIAL_WITHOUT_ROW"),
    ]
    assert report.holds.missing(str(partial.table), partial.key.id)
    apply([change(4, 1, b="new")], target)
    assert not apply([change(1, 1, Op.DELETE), partial], target).rejects
    assert state(target)["1"]["b"] == "new"


steps = st.lists(
    st.tuples(st.sampled_from(["write", "touch", "delete", "move"]), st.integers(0, 3), st.integers(0, 3)),
    max_size=30,
)
"""(what, key, other key); a touch and a move leave the large value ``b`` as it is."""


def happen(drawn: list[tuple[str, int, int]]) -> tuple[list[Change], dict[str, dict[str, Any]]]:
    """Return the records a database would send for these steps, and the rows it would hold in the end."""
    rows: dict[int, dict[str, Any]] = {}
    out: list[Change] = []

    def send(key: int, op: Op, lsn: int, absent: frozenset[str] = frozenset()) -> dict[str, Any]:
        sent = change(len(out), key, op, absent)
        out.append(replace(sent, origin=replace(sent.origin, lsn=lsn)))
        return dict(sent.row)

    for lsn, (what, key, other) in enumerate(drawn, start=1):
        if what == "write":
            rows[key] = send(key, Op.UPSERT, lsn)
        elif key not in rows or (what == "move" and other in rows):
            continue
        elif what == "touch":
            rows[key] |= send(key, Op.UPSERT, lsn, frozenset({"b"}))
        else:
            send(key, Op.DELETE, lsn)
            row = rows.pop(key)
            if what == "move":
                rows[other] = row | send(other, Op.UPSERT, lsn, frozenset({"b"}))
    return out, {str(key): row for key, row in rows.items()}


@given(steps, st.lists(st.integers(1, 6), min_size=30), st.randoms(use_true_random=False))
def test_a_key_change_keeps_its_values_wherever_batches_end_and_run_again(
    drawn: list[tuple[str, int, int]], sizes: list[int], rng: random.Random
) -> None:
    records, rows = happen(drawn)
    target = sink()
    with tempfile.TemporaryDirectory() as folder:
        done = 0
        for size in sizes:
            part, records = records[:size], records[size:]
            kept = carry(Path(folder), done)
            done += len(part)
            for crashes_after_settling in [rng.random() < 0.5, True][rng.random() < 0.6 :]:
                report = apply(part, target, kept)
                assert report.error is None
                assert report.rejects == []
                if crashes_after_settling:
                    kept.discard(report.spent)
        report = apply(records, target, carry(Path(folder), done))
        assert report.rejects == []
        assert state(target) == rows


class Mortal(MemorySink):
    """A store whose caller dies in the middle of a call: the fake is the thing's caller here."""

    rows_left: int | None = None

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        if self.rows_left is None or len(changes) <= self.rows_left:
            self.rows_left = None if self.rows_left is None else self.rows_left - len(changes)
            return super().apply(schema, changes)
        super().apply(schema, changes[: self.rows_left])
        raise Died


class Died(Exception):
    """The driver was killed."""


turns = st.tuples(st.integers(0, 1), st.integers(1, 8), st.none() | st.integers(0, 8))
"""(which engine, so many records, after how many rows it dies)."""


@given(steps, st.lists(turns, max_size=20))
def test_a_key_change_keeps_its_values_whoever_applies_it_after_whom(
    drawn: list[tuple[str, int, int]], turns: list[tuple[int, int, int | None]]
) -> None:
    """Two engines, each with a place of its own, take over from one another, or die in the middle.

    No batch ends within a key change: then only the engine that ended there has the row. A row of which one
    engine has seen the end may be missing to the other until it sees that, too.
    """
    records, rows = happen(drawn)
    target = Mortal("m", MemorySink.Config(store=uuid.uuid4().hex))
    target.prepare(SCHEMA)
    begins, holds = [0, 0], [Holds(), Holds()]
    for engine, size, dies_after in [*turns, (0, len(records), None), (1, len(records), None)]:
        end = begins[engine] + size
        if 0 < end < len(records) and records[end].origin.lsn == records[end - 1].origin.lsn:
            end += 1
        target.rows_left = dies_after
        try:
            report = apply(records[begins[engine] : end], target, holds=holds[engine])
        except Died:
            continue
        assert report.error is None
        begins[engine], holds[engine] = min(end, len(records)), report.holds
    assert [each.counts() for each in holds] == [{}, {}]
    assert state(target) == rows


@pytest.mark.parametrize("dies_after", range(7))
def test_rows_that_change_places_keep_their_values_when_the_engine_dies_on_the_way(dies_after: int) -> None:
    target = Mortal("m", MemorySink.Config(store=uuid.uuid4().hex))
    target.prepare(SCHEMA)
    apply([change(n, n, b=f"large{n}") for n in range(4)], target)
    swap = [*moved(4, 1, 9, lsn=20), *moved(6, 2, 1, lsn=21), *moved(8, 9, 2, lsn=22)]
    shift = [*moved(10, 3, 4, lsn=23), *moved(12, 2, 3, lsn=24)]
    target.rows_left = dies_after
    with contextlib.suppress(Died):
        apply([*swap, *shift], target)
    target.rows_left = None
    assert not apply([*swap, *shift], target).rejects
    assert {key: row["b"] for key, row in state(target).items()} == {
        "0": "large0",
        "1": "large2",
        "3": "large1",
        "4": "large3",
    }


def test_what_is_carried_is_private_and_goes_when_it_is_used(tmp_path: Path) -> None:
    target = sink()
    apply([change(0, 1, b="large")], target)
    delete, create = moved(1, 1, 2, lsn=9)
    apply([delete], target, carry(tmp_path, 1))
    (held,) = tmp_path.iterdir()
    assert held.stat().st_mode & 0o777 == 0o600
    assert state(target) == {}
    # A batch of other partitions comes between.
    apply([], target, Carry(tmp_path, {("u", 0): 7}))
    report = apply([create], target, carry(tmp_path, 2))
    assert state(target) == {"2": {"id": 2, "a": "a2", "b": "large"}}
    carry(tmp_path, 2).discard(report.spent)
    assert not list(tmp_path.iterdir())


def test_a_row_of_any_values_is_carried_unharmed(tmp_path: Path) -> None:
    row = {
        "id": 1,
        "a": [float("inf"), None, b"\x00\xff"],
        "b": b"\xfe",
        "c": "😀 \x01",
        "d": 2**63,
    }
    origin = Origin("a@b-c", 12, 7, lsn=2**40)
    place = "a@b-c", 12
    Carry(tmp_path, {place: 5}).keep(origin, TABLE, Burial(Key.of(["%", None]), row))
    carried = Carry(tmp_path, {place: 8}).kept()[place]
    assert carried.burial == Burial(Key.of(["%", None]), row)
    assert (carried.lsn, carried.table) == (2**40, TABLE)
    assert Carry(tmp_path, {place: 7}).kept() == {}
