"""Many rows in one script call: each is judged by itself, and any text arrives as it was sent."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import strategies as st
from redis import Redis

from headrace.model.change import Change
from headrace.model.outcome import APPLIED, STALE, Outcome, Rejected
from headrace.model.schema import LogicalType
from sinks.contract.story import ORDERS, at, delete, expected, order, search, state, table, unequal, upsert
from sinks.memory import MemorySink
from sinks.redis import RedisSink
from tests.support.stack import RunningStack

pytestmark = pytest.mark.stack

_TEXTS = (
    "",
    "\x00",
    "a\x00b\x00",
    "'\"\\/\b\f\n\r\t",
    "\r\n$3\r\nabc\r\n",
    "null",
    "0000000000000000042",
    "0000000000000000042<",
    '{"_headrace":"9999999999999999999"}',
    "\x7f\x80\xff",
    "ä漢字🎈\u2028\ufeff\U0010ffff",
    "%json %s %d %00",
    "x" * 31,
    "x" * 255,
    "x" * 65_535,
    "漢" * 22_000,
)


@pytest.fixture
def prefix(stack: RunningStack) -> Iterator[str]:
    prefix = f"g{uuid.uuid4().hex[:10]}:"
    yield prefix
    with Redis.from_url(stack.endpoints.redis_url) as redis:
        for key in redis.scan_iter(match=prefix + "*", count=1000):
            redis.unlink(key)


@pytest.fixture(params=["json", "hash"])
def sink(stack: RunningStack, prefix: str, request: pytest.FixtureRequest) -> Iterator[RedisSink]:
    config = RedisSink.Config(url=stack.endpoints.redis_url, key_prefix=prefix, format=request.param)
    sink = RedisSink("cache", config)
    yield sink
    sink.close()


def _change(number: int, drawn: tuple[str, int, str | None]) -> Change:
    what, offset, note = drawn
    if what == "gone":
        return delete(ORDERS, number, at(offset))
    return order(number, at(offset), item=str(offset), note=note, absent=["note"] if what == "part" else ())


def test_any_mixture_ends_as_in_the_reference(sink: RedisSink) -> None:
    """Missing, deleted, older and newer rows, full and partial changes and deletes, in calls of any size."""
    numbers = count(0, 1_000)
    one = st.tuples(
        st.sampled_from(["full", "full", "part", "gone"]),
        st.integers(1, 8),
        st.sampled_from([None, "", "a", "\x00", "ä\n"]),
    )
    batch = st.dictionaries(st.integers(0, 300), one, min_size=1, max_size=300)

    def check(batches: list[dict[int, tuple[str, int, str | None]]]) -> None:
        base = next(numbers)
        reference = MemorySink("reference", MemorySink.Config(store=uuid.uuid4().hex))
        reference.prepare(ORDERS)
        for drawn in batches:
            changes = [_change(base + number, one) for number, one in drawn.items()]
            assert sink.apply(ORDERS, changes) == reference.apply(ORDERS, changes)
        ours = {str(number) for number in range(base, base + 1_000)}
        found = {key: row for key, row in state(sink, ORDERS).items() if key in ours}
        assert unequal(found, state(reference, ORDERS)) == {}
        assert found.keys() == state(reference, ORDERS).keys()

    search(st.lists(batch, min_size=2, max_size=4), check, 15)


def test_strangers_among_all_kinds_of_rows(stack: RunningStack, prefix: str, sink: RedisSink) -> None:
    sink.apply(ORDERS, [order(n, at(10)) for n in range(100, 200)])
    sink.apply(ORDERS, [delete(ORDERS, n, at(20)) for n in range(150, 250)])
    with Redis.from_url(stack.endpoints.redis_url) as redis:
        for n in range(0, 300, 7):
            redis.delete(f"{prefix}orders:{n}")
            redis.lpush(f"{prefix}orders:{n}", "mine")
        taken = set(range(0, 300, 7))
        outcomes = sink.apply(ORDERS, [order(n, at(15)) for n in range(300)])
        deleted = set(range(150, 250)) - taken
        for n, outcome in enumerate(outcomes):
            wanted: Outcome | None = STALE if n in deleted else APPLIED
            if n in taken:
                assert isinstance(outcome, Rejected)
                assert outcome.code == "REDIS_KEY_TAKEN"
                assert redis.lrange(f"{prefix}orders:{n}", 0, -1) == [b"mine"]
            else:
                assert outcome == wanted, n
    assert state(sink, ORDERS) == expected(
        ORDERS, [order(n, at(15)) for n in range(300) if n not in taken | deleted]
    )


def test_texts_arrive_as_they_were_sent(sink: RedisSink) -> None:
    kinds = {"id": LogicalType.TEXT, "a": LogicalType.TEXT, "b": LogicalType.OTHER, "c": LogicalType.TEXT}
    schema = table("texts", kinds, ["id"])
    rows = [
        {"id": f"{n}:{text[:50]}", "a": text, "b": None if n % 2 else text, "c": "" if n % 3 else None}
        for n, text in enumerate(_TEXTS)
    ]
    for turn in (1, 2):
        changes = [upsert(schema, row, at(100 * turn + n)) for n, row in enumerate(rows)]
        assert sink.apply(schema, changes) == [APPLIED] * len(changes)
        assert state(sink, schema) == expected(schema, changes)
        rows = [{**row, "b": row["c"], "c": row["b"]} for row in rows]


def test_any_text_arrives_as_it_was_sent(sink: RedisSink) -> None:
    schema = table("any", {"id": LogicalType.INT64, "a": LogicalType.TEXT, "b": LogicalType.TEXT}, ["id"])
    text = st.none() | st.text(max_size=80)
    offsets = count(1)

    def check(rows: list[tuple[str | None, str | None]]) -> None:
        offset = next(offsets)
        changes = [upsert(schema, {"id": n, "a": a, "b": b}, at(offset)) for n, (a, b) in enumerate(rows)]
        assert sink.apply(schema, changes) == [APPLIED] * len(changes)
        stored = sink.rows(schema, [change.key for change in changes])
        filled: Any = [{name: stored[c.key].row.get(name) for name in c.row} for c in changes]
        assert filled == [c.row for c in changes]

    search(st.lists(st.tuples(text, text), min_size=1, max_size=20), check, 60)


def test_text_that_is_no_unicode_is_refused_alone(sink: RedisSink) -> None:
    changes = [order(n, at(n), item="\ud800" if n == 5 else "cup") for n in range(1, 9)]
    outcomes = sink.apply(ORDERS, changes)
    assert [outcome == APPLIED for outcome in outcomes] == [n != 5 for n in range(1, 9)]
    refused = outcomes[4]
    assert isinstance(refused, Rejected)
    assert refused.code == "REDIS_VALUE_REFUSED"
    assert state(sink, ORDERS) == expected(ORDERS, [c for c in changes if c.key.id != "5"])


def test_large_values_among_small_ones(sink: RedisSink) -> None:
    sizes = {3: 1_000_000, 4: 999_999, 100: 1_500_000, 299: 70_000}
    changes = [order(n, at(n + 1), note="ä" * sizes.get(n, 1)) for n in range(300)]
    assert sink.apply(ORDERS, changes) == [APPLIED] * 300
    assert sink.apply(ORDERS, changes) == [APPLIED] * 300
    assert state(sink, ORDERS) == expected(ORDERS, changes)


def test_as_many_columns_as_postgres_has_in_as_many_rows_as_a_call_has(sink: RedisSink) -> None:
    names = [f"c{n}" for n in range(1_599)]
    schema = table("wide", {"id": LogicalType.INT64, **dict.fromkeys(names, LogicalType.TEXT)}, ["id"])
    full = dict.fromkeys(names, "1")
    few = {**dict.fromkeys(names), "c7": "seven"}
    rows = [{"id": n, **(few if n % 16 else full)} for n in range(300)]
    changes = [upsert(schema, row, at(n + 1)) for n, row in enumerate(rows)]
    assert sink.apply(schema, changes) == [APPLIED] * 300
    assert state(sink, schema) == expected(schema, changes)
    turned = [{"id": n, **(full if n % 16 == 1 else few)} for n in range(300)]
    changes = [upsert(schema, row, at(1_000 + n)) for n, row in enumerate(turned)]
    assert sink.apply(schema, changes) == [APPLIED] * 300
    assert state(sink, schema) == expected(schema, changes)
    parts = [upsert(schema, {"id": n, **few}, at(2_000 + n), absent=names[1_000:]) for n in range(300)]
    assert sink.apply(schema, parts) == [APPLIED] * 300
    kept = [{**row, **{name: few[name] for name in names[:1_000]}} for row in turned]
    assert state(sink, schema) == expected(
        schema, [upsert(schema, row, at(2_000 + n)) for n, row in enumerate(kept)]
    )


def test_a_column_that_is_no_more_leaves_nothing(stack: RunningStack, prefix: str, sink: RedisSink) -> None:
    sink.apply(ORDERS, [order(n, at(n), note="old") for n in range(1, 4)])
    left = table(
        "orders", {"id": LogicalType.INT64, "item": LogicalType.TEXT, "new": LogicalType.TEXT}, ["id"]
    )
    rows: list[dict[str, Any]] = [{"id": 1, "item": "a", "new": None}, {"id": 2, "item": None, "new": "n"}]
    assert sink.apply(left, [upsert(left, row, at(9)) for row in rows]) == [APPLIED] * 2
    if sink.config.format == "hash":
        with Redis.from_url(stack.endpoints.redis_url, decode_responses=True) as redis:
            fields = [set(redis.hkeys(f"{prefix}orders:{n}")) for n in (1, 2)]
        own = {"_headrace", "_headrace_source"}
        assert fields == [{"id", "item", *own}, {"id", "new", *own}]
    assert state(sink, left) == expected(left, [upsert(left, row, at(9)) for row in rows]) | {
        "3": ({"id": 3, "item": "cup", "new": None}, 4)
    }


def test_a_column_the_schema_does_not_know_yet_is_stored(
    stack: RunningStack, prefix: str, sink: RedisSink
) -> None:
    row = {
        "id": 1,
        "item": "a",
        "price": "1",
        "note": None,
        "_headrace_new": 9_007_199_254_740_993,
        "ok": True,
    }
    assert sink.apply(ORDERS, [upsert(ORDERS, row, at(1))]) == [APPLIED]
    with Redis.from_url(stack.endpoints.redis_url, decode_responses=True) as redis:
        key = f"{prefix}orders:1"
        if sink.config.format == "hash":
            assert redis.hmget(key, "%5Fheadrace_new", "ok") == ["9007199254740993", "true"]
        else:
            assert '"ok":true' in str(redis.get(key))
            assert "9007199254740993" in str(redis.get(key))
