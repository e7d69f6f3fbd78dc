"""Rows as keys: compared and written by one script call per group, deletes remembered beside them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
import orjson
from redis.exceptions import ConnectionError, RedisError, TimeoutError  # noqa: A004

from headrace.model.change import Change
from headrace.model.claim import Claim
from headrace.model.finding import Finding
from headrace.model.key import Key
from headrace.model.life import is_among
from headrace.model.outcome import APPLIED, Outcome, Rejected
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema
from sinks.base import Place, Progress, Stored, Target
from sinks.document import BadValue
from sinks.redis.answers import note
from sinks.redis.client import Call, Client, RedisConfig, refusal, store_errors
from sinks.redis.evictions import Evictions
from sinks.redis.groups import FIRST_ROWS, GROUP_BYTES, GROUP_ROWS, next_rows
from sinks.redis.merging import merge
from sinks.redis.moment import Moment
from sinks.redis.names import claims_key, glob, progress_key
from sinks.redis.preflight import findings
from sinks.redis.scripts import CLAIM
from sinks.redis.shadow import Rename
from sinks.redis.table import Table
from sinks.redis.witness import Witnesses, first_written
from sinks.shadow import serving_config, switch

__all__ = ["RedisSink"]

_PAGE = 1_000
_absent = attrgetter("absent")


class RedisSink:
    """Mirrors tables into keys.

    Tombstones live for ``tombstone_hours`` at least: a replay of an older past needs a new epoch. Redis
    Cluster is not supported: a script call spans keys of many slots.
    """

    kind: str = "redis"
    placement: str = "executor"
    pace_s: float = 0.0
    rows_at_once: int = 5_000
    Config: ClassVar[type[RedisConfig]] = RedisConfig

    def __init__(self, name: str, config: RedisConfig) -> None:
        self.name = name
        self.config = config
        self._client = Client(config)
        self._tables: dict[TableId, Table] = {}
        self._witnesses = Witnesses(self._client.redis, config.key_prefix)
        self._evictions = Evictions(self._client.redis, config.key_prefix)
        self._moment = Moment(self._client.redis, config.key_prefix)

    def _table(self, schema: TableSchema) -> Table:
        known = self._tables.get(schema.table)
        if known is None or (known.schema is not schema and known.schema != schema):
            known = self._tables[schema.table] = Table(self.config, schema)
        return known

    # ------------------------------------------------------------ registration

    def check(self, schemas: Sequence[TableSchema] = ()) -> list[Finding]:
        return findings(self._client, self.config, [self._table(schema).keys.head for schema in schemas])

    def prepare(self, schema: TableSchema) -> None:
        with store_errors():
            if self.config.shadow:
                self._client.redis.setnx(self._table(schema).keys.prepared, b"")
            self._witnesses.stand_for(self._table(schema).keys)

    def exists(self, schema: TableSchema) -> bool:
        own = self._table(schema).keys
        with store_errors():
            claimed = self._client.redis.hexists(claims_key(self.config.key_prefix), own.head)
            return bool(claimed or self._witnesses.exists(own) or any(self._pages(own.head)))

    def target(self, schema: TableSchema) -> Target:
        template = self._table(schema).keys.template
        return Target(
            schema.table, {"key_template": template, "format": self.config.format, "escape": "percent"}
        )

    # ------------------------------------------------------------ applying

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        try:
            return self._apply(self._table(schema), changes)
        except (ConnectionError, TimeoutError):
            # A pooled connection may have gone stale; whatever was applied may be applied again.
            with store_errors():
                return self._apply(self._table(schema), changes)
        except RedisError as error:
            raise refusal(error) from error

    def _apply(self, table: Table, changes: Sequence[Change]) -> list[Outcome]:
        outcomes: list[Outcome] = [APPLIED] * len(changes)
        partial: list[int] = []
        calls = self._calls(table, changes, outcomes, partial)
        for numbers, answer in self._client.run(table.layout.script, calls):
            note(outcomes, numbers, answer)
        if partial:
            merge(self._client, table, changes, outcomes, partial)
        if not self.config.shadow and (there := first_written(changes, outcomes)):
            self._witnesses.written(table.keys, there)
        return outcomes

    @staticmethod
    def _calls(
        table: Table, changes: Sequence[Change], outcomes: list[Outcome], partial: list[int]
    ) -> Iterator[Call]:
        """Yield the script calls; changes that need a merge here are put into ``partial``."""
        # Of many the first call is small: Redis soon has something to do, and it tells how large rows are.
        start, rows = 0, FIRST_ROWS if len(changes) > GROUP_ROWS else GROUP_ROWS
        while start < len(changes):
            numbers: Sequence[int] = range(start, min(start + rows, len(changes)))
            start = numbers[-1] + 1
            if not table.layout.merges and any(map(_absent, changes[numbers[0] : start])):
                partial += [number for number in numbers if changes[number].absent]
                numbers = [number for number in numbers if not changes[number].absent]
            size = yield from _group(table, changes, numbers, outcomes)
            rows = next_rows(rows, len(numbers), size)

    def rows(self, schema: TableSchema, keys: Sequence[Key]) -> dict[Key, Stored]:
        table = self._table(schema)
        with store_errors():
            found = table.layout.fetch(self._client.redis, table.row_keys(keys))
        pairs = zip(keys, found, strict=True)
        return {key: Stored(key.id, stored[1], stored[0]) for key, stored in pairs if stored is not None}

    def truncate(self, schema: TableSchema, position: Position) -> int:
        table = self._table(schema)
        removed = 0
        with store_errors():
            for page in self._pages(table.keys.head):
                groups = (page[at : at + GROUP_ROWS] for at in range(0, len(page), GROUP_ROWS))
                there = (self._ours(table, group, position.floor) for group in groups)
                calls = (
                    Call(None, keys, (*table.preamble, *table.layout.removals(position.text, len(keys))))
                    for keys in there
                    if keys
                )
                for _, answer in self._client.run(table.layout.script, calls):
                    removed += answer[0].count(b"A")
                    if b"E" in answer[0]:
                        raise refusal(answer[1].decode())
        return removed

    def count(self, schema: TableSchema, position: Position | None = None) -> int:
        table, found = self._table(schema), array("q")
        least, below = (0, math.inf) if position is None else (position.floor, position.version)
        with store_errors():
            for page in self._pages(table.keys.head):
                versions = table.layout.versions(self._client.redis, page)
                told = zip(page, versions, strict=True)
                found.extend(hash(key) for key, v in told if v is not None and least <= v < below)
        # A key may have been passed twice; eight bytes of each are kept to know it.
        return len(np.unique(np.frombuffer(found, np.int64)))

    # ------------------------------------------------------------ progress

    def progress(self, places: Collection[Place] | None = None) -> Progress:
        key = progress_key(self.config.key_prefix, self.config.shadow)
        if places is not None:
            named = sorted(places)
            with store_errors():
                told = self._moment.look(key, [f"{t}:{p}" for t, p in named])
            return {
                place: int(offset) for place, offset in zip(named, told, strict=True) if offset is not None
            }
        with store_errors():
            stored: Mapping[bytes, bytes] = self._client.redis.hgetall(key)  # type: ignore[assignment]
        split = {field.decode().rpartition(":"): int(offset) for field, offset in stored.items()}
        return {(topic, int(partition)): offset for (topic, _, partition), offset in split.items()}

    def settle(self, progress: Progress) -> None:
        if not progress:
            return
        fields = {f"{topic}:{partition}": offset for (topic, partition), offset in progress.items()}
        with store_errors():
            self._moment.settle(progress_key(self.config.key_prefix, self.config.shadow), fields)

    def identities(self, schemas: Sequence[TableSchema]) -> dict[TableId, str] | None:
        tables = {self._table(schema).keys.head: schema.table for schema in schemas}
        with store_errors():
            if self._evictions.happened():  # nobody knows of which table, so every table is filled again
                self._witnesses.forget_all()
                self._evictions.note()
            places = [(t.keys, t.layout) for t in map(self._table, schemas)]
            told = self._witnesses.tokens(places, counted=not self.config.shadow)
        return {tables[head]: token for head, token in told.items()}

    # ------------------------------------------------------------ claims

    def claims(self, schemas: Sequence[TableSchema]) -> dict[TableId, Claim]:
        heads = [self._table(schema).keys.head for schema in schemas]
        if not heads:
            return {}
        with store_errors():
            stored = self._client.redis.hmget(claims_key(self.config.key_prefix), heads)
        standing = zip(schemas, stored, strict=True)
        return {schema.table: Claim.from_dict(orjson.loads(text)) for schema, text in standing if text}

    def claim(
        self, schemas: Sequence[TableSchema], claim: Claim, instead_of: Mapping[TableId, Claim]
    ) -> list[TableId]:
        pairs: list[Any] = []
        for schema in schemas:
            before = instead_of.get(schema.table)
            pairs += (self._table(schema).keys.head, _claim_text(before) if before else b"")
        key = claims_key(self.config.key_prefix)
        with store_errors():
            letters = self._client.redis.eval(CLAIM, 1, key, _claim_text(claim), *pairs)
        answer = zip(schemas, letters.decode(), strict=True)
        return [schema.table for schema, letter in answer if letter == "L"]

    # ------------------------------------------------------------ reading, removing

    def _pages(self, head: str, *, once: bool = False) -> Iterator[list[bytes]]:
        """Yield all keys that begin with ``head``, in pages; unless ``once``, one may come in two of them."""
        keys, seen = iter(self._client.redis.scan_iter(match=glob(head) + "*", count=_PAGE)), set[bytes]()
        while page := list(dict.fromkeys(islice(keys, _PAGE))):
            yield [key for key in page if key not in seen]
            seen.update(page if once else ())

    def scan(self, schema: TableSchema) -> Iterator[Stored]:
        table = self._table(schema)
        cut = len(table.keys.head.encode())
        with store_errors():
            for page in self._pages(table.keys.head, once=True):
                for key, row in zip(page, table.layout.fetch(self._client.redis, page), strict=True):
                    if row is not None:
                        yield Stored(key[cut:].decode(), row[1], row[0])

    def drop(self, schema: TableSchema) -> None:
        table = self._table(schema)
        with store_errors():
            for page in self._pages(table.keys.head):
                if rows := self._ours(table, page):
                    self._witnesses.unlink(table.keys, rows)
            self._witnesses.forget(table.keys)
            self._evictions.forget()
            claims = claims_key(self.config.key_prefix)
            self._client.redis.hdel(claims, table.keys.head)
            # Else it would take the marks of who writes to what is served, or to other tables.
            if not self.config.shadow and not self._client.redis.exists(claims):
                self._moment.forget()

    def switch(self, schema: TableSchema) -> None:
        with closing(RedisSink(self.name, serving_config(self.config))) as serving:
            mine, theirs = self._table(schema), serving._table(schema)
            ours = partial(self._ours, theirs)
            rename = Rename(self._client.redis, mine.keys, theirs.keys, ours, mine.life_ms)
            filled = rename.filled()
            if filled:
                rename.add_tombstones()
            with store_errors():
                self._witnesses.renamed(theirs.keys)  # also if it is broken off in the middle
            switch(serving, self, schema, settled=self.progress(), filled=filled, move=rename.move)
            with store_errors():
                self._witnesses.renamed(theirs.keys)
        self.drop(schema)

    def _ours(self, table: Table, keys: Sequence[bytes], floor: int = 0) -> list[bytes]:
        """Return the keys that hold rows of this sink, from version ``floor`` on."""
        # Rows are not read for it: they may be of a time when their columns had other types.
        versions = table.layout.versions(self._client.redis, keys)
        return [
            key
            for key, version in zip(keys, versions, strict=True)
            if version is not None and version >= floor
        ]

    def forget(self, topics: Collection[str]) -> None:
        fields = [f"{topic}:{partition}" for topic, partition in self.progress() if is_among(topic, topics)]
        if fields:
            with store_errors():
                self._client.redis.hdel(progress_key(self.config.key_prefix, self.config.shadow), *fields)

    def maintain(self, seconds: float, leave: Collection[TableId] = ()) -> bool:
        return False

    def close(self) -> None:
        self._moment.close()
        self._client.redis.close()


def _group(
    table: Table, changes: Sequence[Change], numbers: Sequence[int], outcomes: list[Outcome]
) -> Generator[Call, None, int]:
    """Yield the call for these changes, or calls for parts of them; return how many bytes their rows take.

    A change that cannot be written is Rejected alone. A call does not keep Redis from others for long.
    """
    if not numbers:
        return 0
    group = [changes[number] for number in numbers]
    size = 0
    try:
        args = table.layout.arguments(group)
        size = sum(map(len, args))
        if len(group) == 1 or size <= GROUP_BYTES:
            yield Call(numbers, table.row_keys([change.key for change in group]), (*table.preamble, *args))
            return size
    except BadValue as error:
        if len(group) == 1:
            outcomes[numbers[0]] = Rejected("REDIS_VALUE_REFUSED", str(error))
            return 0
    half = len(numbers) // 2
    size = yield from _group(table, changes, numbers[:half], outcomes)
    return size + (yield from _group(table, changes, numbers[half:], outcomes))


def _claim_text(claim: Claim) -> bytes:
    return orjson.dumps(claim.as_dict(), option=orjson.OPT_SORT_KEYS)
