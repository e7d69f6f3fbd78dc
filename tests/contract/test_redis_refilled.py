"""Keys that go from Redis while their table is filled again are missed, and only those of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from headrace.model.schema import TableId, TableSchema
from sinks.contract.story import ORDERS, at, delete, order, state
from sinks.redis import RedisSink, walk
from sinks.redis.names import Keys
from tests.support.redis_server import Server, redis_server, until_told
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack

OTHERS = replace(ORDERS, table=TableId("public", "others"))


@pytest.fixture
def server(stack: RunningStack) -> Iterator[Server]:
    with redis_server(stack) as opened:
        yield opened


def _fill_again(sink: RedisSink, offset: int) -> None:
    """Do what the engine does with a table whose target is not the one that was filled."""
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(number, at(number)) for number in range(1, offset)])


def _not_passed(sink: RedisSink, keys: Sequence[str]) -> str:
    """Return one of these keys that the walk which is under way has not passed."""
    walked = sink._witnesses._audit._walk
    assert walked
    seen = {number for numbers in walked._seen.values() for number in numbers}
    return next(key for key in keys if hash(key.encode()) not in seen)


def _walk_over(sink: RedisSink, schemas: Sequence[TableSchema] = (ORDERS,)) -> None:
    """Look until a thorough walk has begun and ended."""
    counter = sink._witnesses._audit
    counter._again = counter._thorough_again = float("-inf")
    until(lambda: sink.identities(schemas) is not None and counter._thorough_again > float("-inf"))


@pytest.mark.parametrize("style", ["json", "hash"])
def test_a_key_that_goes_while_its_table_is_filled_again_is_missed(server: Server, style: str) -> None:
    """What is left when a loss is found is known: no walk that begins later has to find it out."""
    sink = server.sink(format=style)
    _fill_again(sink, 600)
    until_told(sink)
    server.redis.delete(f"{server.prefix}orders:77")
    until(lambda: sink.identities([ORDERS]) == {})
    _fill_again(sink, 300)
    server.redis.delete(f"{server.prefix}orders:78")
    until(lambda: sink.identities([ORDERS]) == {})
    _fill_again(sink, 600)
    told = until_told(sink)
    assert told
    for _ in range(5):
        assert sink.identities([ORDERS]) == told
    assert len(state(sink, ORDERS)) == 599
    sink.close()


@pytest.mark.deep
@pytest.mark.usefixtures("_no_rest")
@pytest.mark.parametrize("went_on", [True, False], ids=["and they go on", "and are done"])
def test_who_removes_a_tables_keys_one_by_one_while_it_is_filled_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, went_on: bool
) -> None:
    """The row that stands for the table goes early; how many are left is not known by then."""
    monkeypatch.setattr(walk, "_PART_S", 0.0)
    monkeypatch.setattr(walk, "_PAGE", 100)
    sink = server.sink()
    _fill_again(sink, 600)
    until_told(sink)
    keys = [f"{server.prefix}orders:{number}" for number in range(1, 600)]
    server.redis.delete(*keys[:200])
    assert sink.identities([ORDERS]) == {}
    _fill_again(sink, 600)
    told = sink.identities([ORDERS])
    assert told
    if went_on:
        server.redis.delete(_not_passed(sink, keys))
        until(lambda: sink.identities([ORDERS]) == {})
        _fill_again(sink, 600)
        told = until_told(sink)
    assert until_told(sink) == told
    _walk_over(sink)
    assert sink.identities([ORDERS]) == told, "it is told once"
    assert len(state(sink, ORDERS)) == 599
    sink.close()


@pytest.mark.deep
@pytest.mark.usefixtures("_no_rest")
def test_a_key_that_goes_before_a_new_process_looks_at_a_table_that_is_filled_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has looked on meanwhile, so the table is filled once more; once is enough."""
    monkeypatch.setattr(walk, "_PART_S", 0.0)
    monkeypatch.setattr(walk, "_PAGE", 100)
    sink = server.sink()
    _fill_again(sink, 600)
    until_told(sink)
    server.redis.delete(*(f"{server.prefix}orders:{number}" for number in range(1, 200)))
    assert sink.identities([ORDERS]) == {}
    _fill_again(sink, 600)
    assert sink.identities([ORDERS])
    server.redis.delete(f"{server.prefix}orders:77")
    sink.close()
    sink = server.sink()
    until(lambda: sink.identities([ORDERS]) == {})
    _fill_again(sink, 600)
    told = until_told(sink)
    _walk_over(sink)
    assert sink.identities([ORDERS]) == told
    assert len(state(sink, ORDERS)) == 599
    sink.close()


@pytest.mark.deep
@pytest.mark.usefixtures("_no_rest")
@pytest.mark.parametrize("removed", ["counts", "a shadow"])
def test_a_table_is_not_filled_twice_for_what_we_removed_of_another(
    server: Server, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    monkeypatch.setattr(walk, "_PART_S", 0.0)
    monkeypatch.setattr(walk, "_PAGE", 100)
    both, rows = [ORDERS, OTHERS], range(1, 50)
    sink = server.sink()
    sink.prepare(OTHERS)
    sink.apply(OTHERS, [structs.replace(order(n, at(n)), table=OTHERS.table) for n in rows])
    sink._witnesses.renamed(sink._table(OTHERS).keys)
    _fill_again(sink, 600)
    until_told(sink, both)
    shadow = RedisSink("cache", sink.config.model_copy(update={"shadow": "r1"}))
    shadow.prepare(OTHERS)
    shadow.apply(OTHERS, [structs.replace(order(n, at(n)), table=OTHERS.table) for n in rows])
    sink.apply(OTHERS, [structs.replace(delete(OTHERS, n, at(90)), table=OTHERS.table) for n in rows[:9]])
    server.redis.delete(*(f"{server.prefix}orders:{number}" for number in range(1, 200)))
    assert (sink.identities(both) or {}).keys() == {OTHERS.table}
    _fill_again(sink, 600)
    told = sink.identities(both)
    assert told
    forget = shadow._witnesses.forget

    def looked(keys: Keys) -> None:
        assert sink.identities(both) == told
        forget(keys)

    monkeypatch.setattr(shadow._witnesses, "forget", looked)
    if removed == "counts":  # more were removed than made since they were counted
        sink._witnesses.renamed(sink._table(OTHERS).keys)
    else:
        shadow.drop(OTHERS)
    assert sink.identities(both) == told
    assert until_told(sink, both) == told
    _walk_over(sink, both)
    assert sink.identities(both) == told, "nothing was lost"
    shadow.close()
    sink.close()
