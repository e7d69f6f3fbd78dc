"""A batch through collapse and apply into the reference sink: nothing lost, nothing doubled."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headrace.model.change import Change, Op, Origin, Poison, Record, Truncate, collapse
from headrace.model.outcome import Deferred, Outcome
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema
from sinks.memory import MemorySink
from spark_jobs.apply import Pause, apply_records
from spark_jobs.collapse import Collapser
from spark_jobs.held import Holds
from spark_jobs.latency import Histogram, Recent
from spark_jobs.report import Report
from tests.support.small_table import NOTHING_CARRIED, SCHEMA, TABLE, TABLES, apply, change, sink, state

histories = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([Op.UPSERT, Op.UPSERT, Op.DELETE]), st.booleans()),
    max_size=40,
)


def build(history: list[tuple[int, Op, bool]]) -> list[Change]:
    """Turn drawn steps into a history a database could have: a partial image only of a live row."""
    live: set[int] = set()
    out = []
    for offset, (key, op, partial) in enumerate(history):
        absent = frozenset({"b"}) if partial and op is Op.UPSERT and key in live else frozenset()
        out.append(change(offset, key, op, absent))
        live = live | {key} if op is Op.UPSERT else live - {key}
    return out


@given(histories, st.integers(1, 7), st.randoms(use_true_random=False))
def test_batches_of_any_size_end_as_one_by_one(
    history: list[tuple[int, Op, bool]], size: int, rng: random.Random
) -> None:
    changes = build(history)
    one_by_one, batched = sink(), sink()
    for item in changes:
        apply([item], one_by_one)
    for start in range(0, len(changes), size):
        report = apply(changes[start : start + size], batched)
        assert report.error is None
        assert not report.rejects
        if rng.random() < 0.3:
            apply(changes[start : start + size], batched)
    assert state(batched) == state(one_by_one)


@given(histories, st.randoms(use_true_random=False))
def test_collapse_does_not_depend_on_arrival(history: list[tuple[int, Op, bool]], rng: random.Random) -> None:
    changes = [c for c in build(history) if not c.partial]
    in_order, shuffled = Collapser(), Collapser()
    for item in changes:
        in_order.add(item)
    for item in rng.sample(changes, len(changes)):
        shuffled.add(item)
    (one,), (other,) = in_order.drain(), shuffled.drain()
    assert {c.key: c for c in one.latest} == {c.key: c for c in other.latest}


def test_collapse_carries_the_value_a_newer_partial_image_lacks() -> None:
    merged = collapse(change(1, 1), change(2, 1, absent=frozenset({"b"})))
    assert merged.row == {"id": 1, "a": "a2", "b": "b1"}
    assert not merged.partial
    assert merged.position.offset == 2


def test_a_truncate_is_a_barrier_of_its_table() -> None:
    target = sink()
    origin = Origin("t", 0, 2)
    report = apply(
        [change(0, 1), change(1, 2), Truncate(TABLE, Position(1, 2), origin), change(3, 3)],
        target,
    )
    assert set(state(target)) == {"3"}
    assert report.tables["public.t"]["applied"] == 4


def test_a_poison_record_is_set_aside_and_the_others_are_applied() -> None:
    target = sink()
    bad = Poison(Origin("t", 0, 1), "RECORD_MALFORMED", "why")
    report = apply([change(0, 1), bad, change(2, 2)], target)
    assert set(state(target)) == {"1", "2"}
    assert [(r["offset"], r["code"]) for r in report.rejects] == [(1, "RECORD_MALFORMED")]


class Patience(MemorySink):
    """A store that defers every second change on its first call: the fake is the thing's caller here."""

    calls = 0

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        self.calls += 1
        if self.calls > 1:
            return super().apply(schema, changes)
        now = super().apply(schema, changes[::2])
        later = iter(now)
        return [next(later) if i % 2 == 0 else Deferred(0.01) for i in range(len(changes))]


def test_what_the_store_defers_is_asked_again_and_nothing_is_skipped() -> None:
    target = Patience("m", MemorySink.Config(store="patience"))
    target.prepare(SCHEMA)
    report = apply([change(n, n) for n in range(7)], target)
    assert report.error is None
    assert len(state(target)) == 7
    assert target.calls == 2


class Contended(MemorySink):
    """A store of whose first table somebody else writes a row all the time."""

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        if schema.table == TABLE:
            return [Deferred(0.0, "others", of_row=True) for _ in changes]
        return super().apply(schema, changes)


def test_a_row_that_others_write_all_the_time_delays_its_own_table_only() -> None:
    other = replace(SCHEMA, table=TableId("public", "other"))
    target = Contended("m", MemorySink.Config(store="contended"))
    tables = replace(TABLES, schemas={TABLE: SCHEMA, other.table: other})
    for schema in tables.schemas.values():
        target.prepare(schema)
    ours = structs.replace(change(2, 2), table=other.table)
    report = apply_records([change(1, 1), ours], target, tables, NOTHING_CARRIED, Holds())
    assert report.error is None
    assert {table: told["code"] for table, told in report.troubles.items()} == {
        str(TABLE): "SINK_ROWS_CONTENDED"
    }
    assert [stored.key for stored in target.scan(other)] == ["2"]


def test_reports_add_up_and_survive_the_wire() -> None:
    target = sink()
    one = apply([change(0, 1)], target)
    two = apply([change(1, 1), change(2, 2)], target)
    total = Report.merged([Report.load(one.dump()), Report.load(two.dump())])
    assert total.tables["public.t"]["applied"] == 3
    assert total.latency.total == 3


def test_a_percentile_is_at_most_five_percent_off() -> None:
    histogram = Histogram()
    for value in range(1, 1001):
        histogram.add(value)
    assert histogram.percentile(0.5) is not None
    assert abs((histogram.percentile(0.5) or 0) - 500) / 500 < 0.06
    assert abs((histogram.percentile(0.99) or 0) - 990) / 990 < 0.06


def test_a_slow_hour_is_over_in_the_percentiles_some_minutes_later() -> None:
    now = [0.0]
    recent = Recent(300, lambda: now[0])

    def add(milliseconds: float, times: int) -> None:
        one = Histogram()
        one.add(milliseconds, times)
        recent.merge(one.counts)

    for _ in range(60):
        add(60_000, 100)
        now[0] += 10
    assert recent.histogram().total == pytest.approx(3_000, rel=0.11)
    add(10, 1)
    assert recent.histogram().percentile(0.5) == pytest.approx(60_000, rel=0.06)
    now[0] += 320
    add(10, 1)
    assert recent.histogram().percentile(0.99) == pytest.approx(10, rel=0.06)
    now[0] += 331
    assert recent.histogram().percentile(0.5) is None


def test_a_row_that_came_back_and_is_gone_again_by_now_is_no_letter() -> None:
    target = sink()
    apply([change(1, 1), change(9, 1, Op.DELETE)], target)  # another writer was here before
    report = apply([change(5, 1, Op.DELETE), change(6, 1, absent=frozenset({"b"}))], target)
    assert report.rejects == []
    assert report.tables[str(TABLE)]["stale"] == 1
    assert state(target) == {}


def test_what_takes_much_room_is_written_before_more_is_taken() -> None:
    """Otherwise a few thousand large rows would be held at once."""
    target, seen = sink(), []

    def stream() -> Iterator[Record | Pause]:
        for offset in range(6):
            yield change(offset, offset)
            yield Pause()
            yield change(10 + offset, 100 + offset)
            if offset:
                seen.append(len(state(target)))

    report = apply_records(stream(), target, TABLES, NOTHING_CARRIED, Holds())
    assert report.error is None
    assert all(count >= 2 * offset - 1 for offset, count in enumerate(seen, start=1))
    assert len(state(target)) == 12
