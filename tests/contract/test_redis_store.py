"""What the Redis sink does when the server, or somebody with access to it, is in a mood."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import pytest

from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.finding import Severity
from headrace.model.outcome import APPLIED, STALE, Deferred, Rejected
from headrace.model.schema import LogicalType
from sinks.contract.story import ORDERS, at, delete, expected, order, state, table, upsert
from sinks.redis import RedisSink
from tests.support.redis_server import Server, redis_server
from tests.support.stack import RunningStack
from tests.support.waiting import elapse

pytestmark = pytest.mark.stack

ITEMS = table(
    "order_items",
    {
        "order_id": LogicalType.INT64,
        "line_no": LogicalType.INT32,
        "title": LogicalType.TEXT,
        "tags": LogicalType.JSON,
    },
    ["order_id", "line_no"],
)


@pytest.fixture
def server(stack: RunningStack) -> Iterator[Server]:
    with redis_server(stack) as opened:
        yield opened


@pytest.fixture(params=["json", "hash"])
def style(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sink(server: Server, style: str) -> Iterator[RedisSink]:
    sink = server.sink(format=style)
    sink.prepare(ORDERS)
    yield sink
    sink.close()


# ------------------------------------------------------------ what readers find


def test_a_reader_finds_a_row_by_the_template(server: Server) -> None:
    sink = server.sink()
    row = {"order_id": 7, "line_no": 2, "title": "Cup", "tags": '{"new": true, "price": 1.10}'}
    sink.apply(ITEMS, [upsert(ITEMS, row, at(41))])
    facts = sink.target(ITEMS).facts
    assert facts["key_template"] == server.prefix + "order_items:{order_id}:{line_no}"
    text = server.redis.get(facts["key_template"].format(order_id=7, line_no=2))
    assert text.startswith('{"_headrace":"0000000000000000042","_headrace_source":{"topic":')
    document = json.loads(text)
    assert document["_headrace_source"]["offset"] == 41
    assert {name: document[name] for name in row} == {**row, "tags": {"new": True, "price": 1.1}}
    sink.close()


def test_a_hash_holds_plain_texts(server: Server) -> None:
    sink = server.sink(format="hash")
    row = {"order_id": 7, "line_no": 2, "title": None, "tags": '{"a": 1.10}'}
    sink.apply(ITEMS, [upsert(ITEMS, row, at(41))])
    fields = server.redis.hgetall(server.prefix + "order_items:7:2")
    fields.pop("_headrace_source")
    assert fields == {
        "_headrace": "0000000000000000042",
        "order_id": "7",
        "line_no": "2",
        "tags": '{"a": 1.10}',
    }
    sink.apply(ITEMS, [upsert(ITEMS, {**row, "title": "Cup", "tags": None}, at(42))])
    assert server.redis.hmget(server.prefix + "order_items:7:2", "title", "tags") == ["Cup", None]
    sink.close()


def test_a_document_with_one_key_twice_keeps_both_when_another_column_changes(
    server: Server, style: str
) -> None:
    """Postgres' json keeps them, and gives the first or the last to whoever asks."""
    sink = server.sink(format=style)
    row = {"order_id": 7, "line_no": 2, "title": "Cup", "tags": '{"a":1,"b":[{"c":1.10,"c":2}],"a":3}'}
    sink.apply(ITEMS, [upsert(ITEMS, row, at(41))])
    assert sink.apply(ITEMS, [upsert(ITEMS, {**row, "title": "Jug"}, at(42), absent=["tags"])]) == [APPLIED]
    key = server.prefix + "order_items:7:2"
    text = server.redis.get(key) if style == "json" else server.redis.hget(key, "tags")
    assert row["tags"] in text
    sink.close()


def test_readers_of_a_table_see_rows_only(server: Server, sink: RedisSink) -> None:
    sink.apply(
        ORDERS, [order(1, at(1)), order(2, at(2)), delete(ORDERS, 2, at(3)), delete(ORDERS, 9, at(4))][::2]
    )
    sink.apply(ORDERS, [delete(ORDERS, 1, at(3)), delete(ORDERS, 9, at(4)), order(3, at(5))])
    assert list(server.redis.scan_iter(match=server.prefix + "orders:*")) == [server.prefix + "orders:3"]


def test_a_template_of_ones_own(server: Server) -> None:
    sink = server.sink(key_template="cache/{prefix}{table}:row:{pk}")
    sink.apply(ORDERS, [order(1, at(1)), delete(ORDERS, 2, at(2))])
    assert server.redis.exists(f"cache/{server.prefix}orders:row:1")
    assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(1))])
    assert sink.apply(ORDERS, [order(2, at(1))]) == [STALE]
    sink.drop(ORDERS)
    assert not server.redis.exists(f"cache/{server.prefix}orders:row:1")
    sink.close()


@pytest.mark.parametrize(
    "template", ["{pk}", "{table}{pk}", "{prefix}{pk}:{table}", "{table}:{pk}:x", "{table}:{id}{pk}"]
)
def test_a_template_that_lets_keys_meet_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="key_template"):
        RedisSink.Config(url="redis://localhost", key_template=template)


# ------------------------------------------------------------ deletes


def test_a_tombstone_has_an_end(server: Server, style: str) -> None:
    sink = server.sink(format=style, tombstone_hours=1)
    sink.apply(ORDERS, [delete(ORDERS, 1, at(5)), delete(ORDERS, 2, at(6))])
    young = f"{server.prefix}__headrace:deleted:orders:young"
    assert 3 * 3_590_000 < server.redis.pttl(young) <= 3 * 3_600_000
    assert server.redis.hmget(young, "1", "2") == [at(5).text, at(6).text]
    assert server.do("OBJECT", "ENCODING", young) == "hashtable"
    assert sink.apply(ORDERS, [order(1, at(6)), order(2, at(5))]) == [APPLIED, STALE]
    assert server.redis.hmget(young, "1", "2") == [None, at(6).text]
    sink.drop(ORDERS)
    assert not server.redis.exists(young)
    sink.close()


def test_tombstones_are_remembered_for_their_life_and_forgotten_together(server: Server, style: str) -> None:
    """As if time went by: the younger hash is told that it has been there for a tombstone's life."""
    sink = server.sink(format=style, tombstone_hours=1)
    young, elder = (f"{server.prefix}__headrace:deleted:orders:{name}" for name in ("young", "elder"))
    sink.apply(ORDERS, [delete(ORDERS, n, at(10)) for n in (1, 2, 3)])
    server.redis.pexpire(young, 2 * 3_600_000 + 60_000)
    sink.apply(ORDERS, [delete(ORDERS, 4, at(10))])
    assert server.redis.hlen(young) == 5
    server.redis.pexpire(young, 2 * 3_600_000)
    assert sink.apply(ORDERS, [delete(ORDERS, 5, at(10)), delete(ORDERS, 1, at(20))]) == [APPLIED] * 2
    assert server.redis.hmget(young, "1", "4", "5") == [at(20).text, None, at(10).text]
    assert 3 * 3_590_000 < server.redis.pttl(young) <= 3 * 3_600_000
    assert 2 * 3_590_000 < server.redis.pttl(elder) <= 2 * 3_600_000
    assert sink.apply(ORDERS, [order(n, at(9)) for n in (1, 2, 4, 5)]) == [STALE] * 4
    assert sink.apply(ORDERS, [order(1, at(15)), delete(ORDERS, 2, at(5))]) == [STALE] * 2
    assert sink.apply(ORDERS, [order(3, at(9), item="jug", absent=["note"])]) == [STALE]
    assert sink.apply(ORDERS, [order(3, at(11)), order(1, at(21))]) == [APPLIED] * 2
    assert server.redis.hmget(young, "1", "3") == server.redis.hmget(elder, "1", "3") == [None, None]
    server.redis.pexpire(young, 3_600_000)
    sink.apply(ORDERS, [delete(ORDERS, 6, at(10))])
    assert sink.apply(ORDERS, [order(n, at(9)) for n in (2, 4, 5, 6)]) == [APPLIED, APPLIED, STALE, STALE]
    assert state(sink, ORDERS) == expected(
        ORDERS, [order(1, at(21)), order(3, at(11)), order(2, at(9)), order(4, at(9))]
    )
    sink.close()


def test_a_short_life_ends(server: Server, style: str) -> None:
    sink = server.sink(format=style, tombstone_hours=0.1 / 3600)
    sink.apply(ORDERS, [delete(ORDERS, 1, at(5))])
    elapse(0.35)
    assert sink.apply(ORDERS, [order(1, at(4))]) == [APPLIED]
    sink.close()


# ------------------------------------------------------------ operators and strangers


def test_a_strangers_key_is_left_alone(server: Server, sink: RedisSink) -> None:
    key = server.prefix + "orders:"
    server.redis.set(key + "1", "mine")
    server.redis.hset(key + "2", mapping={"mine": "too"})
    server.redis.lpush(key + "3", "and mine")
    outcomes = sink.apply(
        ORDERS, [order(1, at(1)), order(2, at(1)), delete(ORDERS, 3, at(1)), order(4, at(1))]
    )
    assert [type(outcome) for outcome in outcomes] == [Rejected, Rejected, Rejected, type(APPLIED)]
    assert {outcome.code for outcome in outcomes if isinstance(outcome, Rejected)} == {"REDIS_KEY_TAKEN"}
    assert state(sink, ORDERS) == expected(ORDERS, [order(4, at(1))])
    assert sink.truncate(ORDERS, at(10)) == 1
    sink.drop(ORDERS)
    assert server.redis.get(key + "1") == "mine"
    assert server.redis.hgetall(key + "2") == {"mine": "too"}
    assert server.redis.lrange(key + "3", 0, -1) == ["and mine"]


def test_rows_of_another_type_are_removed_without_being_read(server: Server, style: str) -> None:
    kinds = {"id": LogicalType.INT64, "day": LogicalType.TEXT}
    before = table("days", kinds, ["id"])
    after = table("days", {**kinds, "day": LogicalType.DATE}, ["id"])
    sink = server.sink(format=style)
    sink.prepare(before)
    for remove in (lambda: sink.truncate(after, at(10)), lambda: sink.drop(after)):
        rows = [upsert(before, {"id": n, "day": "soon"}, at(n)) for n in range(3)]
        server.redis.delete(*server.redis.scan_iter(match=server.prefix + "*"))
        assert sink.apply(before, rows) == [APPLIED] * 3
        remove()
        assert state(sink, before) == {}
    sink.close()


def test_a_flushed_script_cache_is_filled_again(server: Server, sink: RedisSink) -> None:
    changes = [order(n, at(n)) for n in range(1, 2001)]
    assert sink.apply(ORDERS, changes) == [APPLIED] * 2000
    server.do("SCRIPT", "FLUSH")
    assert sink.apply(ORDERS, [order(n, at(n - 1)) for n in range(1, 2001)]) == [STALE] * 2000
    server.do("SCRIPT", "FLUSH")
    partial = [order(1, at(3000), item="jug", absent=["note"])]
    assert sink.apply(ORDERS, partial) == [APPLIED]
    assert state(sink, ORDERS) == expected(ORDERS, [order(1, at(3000), item="jug"), *changes[1:]])


def test_a_cut_connection_is_opened_again(server: Server, sink: RedisSink) -> None:
    sink.apply(ORDERS, [order(1, at(1))])
    server.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert sink.apply(ORDERS, [order(1, at(1)), order(2, at(2))]) == [APPLIED, APPLIED]


def test_all_of_several_cut_connections_are_opened_again(server: Server, sink: RedisSink) -> None:
    batches = [[order(n, at(n)) for n in range(first, first + 500)] for first in (1, 1001, 2001, 3001)]
    with ThreadPoolExecutor(len(batches)) as at_once:
        for again in range(3):
            outcomes = at_once.map(lambda batch: sink.apply(ORDERS, batch), batches)
            assert all(outcome is APPLIED for outcome in chain.from_iterable(outcomes)), again
            server.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert len(state(sink, ORDERS)) == 2000


def test_a_full_memory_defers_and_loses_nothing(server: Server, sink: RedisSink) -> None:
    sink.apply(ORDERS, [order(1, at(1), note="kept"), order(2, at(2))])
    before = state(sink, ORDERS)
    server.do("CONFIG", "SET", "maxmemory", "1")
    try:
        batch = [order(1, at(3), note=None), delete(ORDERS, 2, at(4)), order(3, at(5)), order(1, at(0))]
        outcomes = sink.apply(ORDERS, batch[:3])
        assert [type(outcome) for outcome in outcomes] == [Deferred] * 3
        assert sink.apply(ORDERS, [order(1, at(4), item="jug", absent=["note"])]) != [APPLIED]
        assert state(sink, ORDERS) == before
    finally:
        server.do("CONFIG", "SET", "maxmemory", "0")
    assert sink.apply(ORDERS, batch[:3]) == [APPLIED] * 3
    assert state(sink, ORDERS) == expected(ORDERS, [batch[0], batch[2]])


def test_an_evicting_policy_is_an_error_with_the_command_to_mend_it(server: Server) -> None:
    sink = server.sink()
    before = server.redis.config_get("maxmemory-policy")["maxmemory-policy"]
    server.do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        finding = next(finding for finding in sink.check() if finding.code == "REDIS_EVICTS")
        assert finding.severity is Severity.ERROR
        assert finding.hint.startswith("CONFIG SET maxmemory-policy noeviction")
    finally:
        server.do("CONFIG", "SET", "maxmemory-policy", before)
    assert "REDIS_EVICTS" not in server.codes(sink)
    sink.close()


def test_a_replica_is_named(server: Server, sink: RedisSink) -> None:
    server.do("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(SinkError) as caught:
            sink.apply(ORDERS, [order(1, at(1))])
        assert caught.value.code == "REDIS_READONLY"
        assert server.codes(sink)["REDIS_READONLY"] is Severity.ERROR
    finally:
        server.do("REPLICAOF", "NO", "ONE")
    assert sink.apply(ORDERS, [order(1, at(1))]) == [APPLIED]


def test_wrong_credentials_are_named(server: Server) -> None:
    server.do("ACL", "SETUSER", "tiny", "on", ">pw", "~nothing", "+@read", "+@connection", "+info")
    address = server.url.split("://")[1].split("@")[-1]
    try:
        for credentials, code in (("tiny:wrong", "REDIS_AUTH"), ("tiny:pw", "REDIS_FORBIDDEN")):
            sink = server.sink(f"redis://{credentials}@{address}")
            with pytest.raises(SinkError) as caught:
                sink.apply(ORDERS, [order(1, at(1))])
            assert (caught.value.code, isinstance(caught.value, SinkUnavailable)) == (code, False)
            assert server.codes(sink)[code] is Severity.ERROR
            sink.close()
    finally:
        server.do("ACL", "DELUSER", "tiny")


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("~* &* +@read +@scripting +@transaction +@connection +info", {"+set", "+hset", "+rename"}),
        ("~* &* +@all -unlink -rename", {"+unlink", "+rename"}),
        ("~other:* +@all", {"~<prefix>*"}),
        ("~<prefix>__headrace* +@all", {"~<prefix>*"}),
        ("~other:* +@all -hkeys", {"+hkeys", "~<prefix>*"}),
        ("~* &* +@all -exec", {"+exec"}),
        ("~* &* +@all -multi", {"+multi", "+set", "+rename"}),
    ],
)
def test_what_a_user_may_not_do_is_told_with_the_statement_that_allows_it(
    server: Server, rules: str, words: set[str]
) -> None:
    """Nothing is written meanwhile; what is told is run, and then nothing is lacking."""
    given = rules.replace("<prefix>", server.prefix).split()
    server.do("ACL", "SETUSER", "weak", "on", ">pw", *given)
    weak = server.sink(f"redis://weak:pw@{server.url.split('://')[1].split('@')[-1]}")
    try:
        (refused,) = weak.check([ORDERS])
        assert refused.code == "REDIS_FORBIDDEN"
        statement = refused.hint.partition("  (")[0].split()
        assert {word.replace("<prefix>", server.prefix) for word in words} <= set(statement)
        assert server.redis.keys(f"{server.prefix}*") == []
        server.do(*statement)
        assert "REDIS_FORBIDDEN" not in {finding.code for finding in weak.check([ORDERS])}
        weak.prepare(ORDERS)
        assert weak.apply(ORDERS, [order(1, at(1)), order(2, at(2))]) == [APPLIED, APPLIED]
        weak.drop(ORDERS)
    finally:
        weak.close()
        server.do("ACL", "DELUSER", "weak")


def test_a_row_that_may_not_be_read_is_not_a_missing_row(server: Server, sink: RedisSink) -> None:
    sink.apply(ORDERS, [order(1, at(1))])
    server.do("ACL", "SETUSER", "blind", "on", ">pw", "~*", "+@all", "-hgetall", "-mget")
    blind = server.sink(
        f"redis://blind:pw@{server.url.split('://')[1].split('@')[-1]}", format=sink.config.format
    )
    try:
        with pytest.raises(SinkError) as caught:
            blind.rows(ORDERS, [order(1, at(1)).key])
        assert caught.value.code == "REDIS_FORBIDDEN"
    finally:
        blind.close()
        server.do("ACL", "DELUSER", "blind")


def test_nobody_there_is_a_finding_and_an_error_that_waiting_cures() -> None:
    sink = RedisSink("cache", RedisSink.Config(url="redis://127.0.0.1:9"))
    assert [(f.severity, f.code) for f in sink.check()] == [(Severity.ERROR, "REDIS_UNREACHABLE")]
    with pytest.raises(SinkUnavailable):
        sink.apply(ORDERS, [order(1, at(1))])
    sink.close()


# ------------------------------------------------------------ size


def test_rows_of_any_size(server: Server, style: str) -> None:
    kinds = {"id": LogicalType.INT64, **{f"c{n}": LogicalType.TEXT for n in range(1500)}}
    schema = table("wide", kinds, ["id"])
    sink = server.sink(format=style)
    wide = {"id": 1, **{f"c{n}": str(n) for n in range(1500)}}
    narrow = {**dict.fromkeys(kinds), "id": 2, "c7": "x" * 5_000_000}
    changes = [upsert(schema, wide, at(1)), upsert(schema, narrow, at(2))]
    assert sink.apply(schema, changes) == [APPLIED, APPLIED]
    assert state(sink, schema) == expected(schema, changes)
    fewer = upsert(schema, {**wide, **dict.fromkeys([f"c{n}" for n in range(1400)])}, at(3))
    assert sink.apply(schema, [fewer]) == [APPLIED]
    assert state(sink, schema) == expected(schema, [fewer, changes[1]])
    sink.close()


def test_a_partial_loses_no_race(server: Server) -> None:
    """Between reading a document and replacing it, another writer gets in: the merge starts over."""
    sink, other = server.sink(), server.sink()
    sink.apply(ORDERS, [order(1, at(1), note="first")])
    table_ = sink._table(ORDERS)
    fetch = table_.layout.fetch
    times = 0

    def interrupted(redis: Any, keys: Any) -> Any:
        nonlocal times
        times += 1
        found = fetch(redis, keys)
        if times == 1:
            other.apply(ORDERS, [order(1, at(2), note="second")])
        return found

    table_.layout.fetch = interrupted  # type: ignore[method-assign]
    assert sink.apply(ORDERS, [order(1, at(3), item="jug", absent=["note"])]) == [APPLIED]
    assert times == 2
    assert state(other, ORDERS) == expected(ORDERS, [order(1, at(3), item="jug", note="second")])
    sink.close()
    other.close()
