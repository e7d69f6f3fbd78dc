"""Partial changes merged into stored documents here, where a layout cannot have Redis do it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.model.change import Change
from headrace.model.key import ids
from headrace.model.outcome import APPLIED, ROW_MISSING, STALE, Outcome, Rejected
from sinks.document import BadValue
from sinks.redis.answers import note
from sinks.redis.client import Call, Client, Script
from sinks.redis.groups import FIRST_ROWS, next_rows
from sinks.redis.scripts import JSON_REPLACE
from sinks.redis.table import Table

__all__ = ["merge"]

_MERGE_TRIES = 5
_REPLACE = Script.of(JSON_REPLACE)


def merge(
    client: Client, table: Table, changes: Sequence[Change], outcomes: list[Outcome], partial: Sequence[int]
) -> None:
    """Merge partial changes into stored documents, each only if it is still the one that was read.

    Args:
        client: Where to.
        table: The table.
        changes: A batch.
        outcomes: What became of each change; told.
        partial: The numbers of those to be merged.
    """
    for _ in range(_MERGE_TRIES):
        again: list[int] = []
        for numbers, answer in client.run(_REPLACE, _calls(client, table, changes, outcomes, partial)):
            note(outcomes, numbers, answer)
            again += [n for n, letter in zip(numbers, answer[0], strict=True) if letter == ord("R")]
        if not again:
            return
        partial = again


def _calls(
    client: Client, table: Table, changes: Sequence[Change], outcomes: list[Outcome], partial: Sequence[int]
) -> Iterator[Call]:
    """Yield the calls that replace stored documents. A small change may leave out columns of a large row."""
    start, rows = 0, FIRST_ROWS
    while start < len(partial):
        numbers = partial[start : start + rows]
        start += len(numbers)
        call = _call(client, table, changes, outcomes, numbers)
        if call.keys:
            yield call
        size = sum(map(len, call.args))
        rows = next_rows(rows, len(numbers), size)


def _call(
    client: Client, table: Table, changes: Sequence[Change], outcomes: list[Outcome], partial: Sequence[int]
) -> Call:
    named = ids([changes[n].key for n in partial])
    rows = table.layout.fetch(client.redis, [table.keys.head + key for key in named])
    stones = zip(
        client.redis.hmget(table.keys.young, named),
        client.redis.hmget(table.keys.elder, named),
        strict=True,
    )
    call = Call([], [], [])
    for number, key, found, (young, elder) in zip(partial, named, rows, stones, strict=True):
        change = changes[number]
        if found is None:
            stone = int(young or elder or 0)
            outcomes[number] = STALE if stone > change.position.version else ROW_MISSING
        elif found[0] > change.position.version:
            outcomes[number] = STALE
        else:
            version, stored = found
            whole = change.filled({name: stored.get(name) for name in change.absent})
            try:
                value = table.documents.value(whole)
            except BadValue as error:
                outcomes[number] = Rejected("REDIS_VALUE_REFUSED", str(error))
                continue
            outcomes[number] = APPLIED
            call.tag.append(number)
            call.keys.append(table.keys.head + key)  # type: ignore[attr-defined]
            call.args.extend((f"{version:019d}", value))  # type: ignore[attr-defined]
    return call
