"""Rows as documents: versioned writes, remembered deletes, progress beside the data."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, ClassVar

from headrace.model.change import Change, Op
from headrace.model.claim import Claim
from headrace.model.finding import Finding
from headrace.model.key import Key
from headrace.model.outcome import APPLIED, STALE, Outcome, Rejected
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema
from headrace.model.values import key_of
from sinks.about import about
from sinks.base import Place, Progress, Stored, Target
from sinks.document import BadValue, Document
from sinks.elasticsearch.bulk import (
    Bulk,
    delete_line,
    insist,
    upsert_line,
    worst,
)
from sinks.elasticsearch.claims import Claims
from sinks.elasticsearch.client import Client, ElasticsearchConfig
from sinks.elasticsearch.identity import Identities
from sinks.elasticsearch.indices import Indices, older_than
from sinks.elasticsearch.mapping import table_mapping
from sinks.elasticsearch.merging import Merging, documents, of_rows, row_of
from sinks.elasticsearch.names import (
    META_FIELD,
    alias_of,
    claims_alias,
    field_of,
    progress_alias,
    replaced_of,
    shadow_of,
    tombstones_of,
    version_in,
)
from sinks.elasticsearch.overwriting import Overwriting
from sinks.elasticsearch.preflight import findings
from sinks.elasticsearch.progress import ProgressIndex
from sinks.elasticsearch.tidying import Tidying
from sinks.elasticsearch.tombstones import Tombstones, groups
from sinks.elasticsearch.unheld import Unheld
from sinks.shadow import serving_config, switch

__all__ = ["ElasticsearchSink"]

_ID_BYTES = 512
_LAST_READERS_S = 1.0
"""So long an index stays after a shadow has taken its place, for requests that are under way."""

_OF_ONE_TABLE = (
    "ES_ALIAS_CHANGED", "ES_NAME_TAKEN", "ES_BLOCKED", "ES_SHARD_UNAVAILABLE", "ES_FORBIDDEN", "ES_REFUSED",
    "ES_HIDDEN", "ES_TEMPLATE_CHANGES", "SINK_ROWS_CONTENDED",
)  # fmt: skip

_DELETE = Op.DELETE  # to look up a member of an enumeration takes its time


class _Table:
    """What the sink knows about one table while it lives."""

    def __init__(
        self, client: Client, indices: Indices, alias: str, schema: TableSchema, unheld: Unheld
    ) -> None:
        self.schema = schema
        self.unheld = unheld
        self.alias = alias
        self.document = Document(schema, field_of, objects_only=True, reserved=(META_FIELD,))
        self.tombstones = Tombstones(client, indices, tombstones_of(alias))
        self.overwriting = Overwriting(client, alias, self.tombstones)


class ElasticsearchSink:
    """Mirrors tables into indexes.

    Order is kept by the cluster itself: every write carries its position as an external version. Where others
    have written, it is kept by the version in the document (:mod:`sinks.elasticsearch.overwriting`).
    Partial changes read the document, merge and write; that is safe as long as one process at a time
    applies a key's changes, which the engine sees to.
    """

    kind: str = "elasticsearch"
    placement: str = "executor"
    pace_s: float = 0.0
    rows_at_once: int = 5_000
    Config: ClassVar[type[ElasticsearchConfig]] = ElasticsearchConfig

    def __init__(self, name: str, config: ElasticsearchConfig) -> None:
        self.name = name
        self.config = config
        self._client = Client(config)
        self._indices = Indices(self._client, config)
        self._identities = Identities(self._client, config.refresh_interval)
        self._bulk = Bulk(self._client, config.chunk_docs, config.chunk_bytes, config.timeout)
        self._tidying = Tidying(self._client, self._indices, self._bulk, config.tombstone_days)
        self._claims = Claims(self._client, self._indices, claims_alias(config.prefix))
        self._progress = ProgressIndex(
            self._client, self._indices, self._bulk, progress_alias(config.prefix), config.shadow
        )
        self._tables: dict[TableId, _Table] = {}

    def _table(self, schema: TableSchema) -> _Table:
        known = self._tables.get(schema.table)
        if known is None or known.schema is not schema:
            alias = shadow_of(alias_of(self.config.prefix, schema.table), self.config.shadow)
            if known is not None and known.schema == schema:
                return known
            unheld = Unheld(schema, dict(self.config.policies(schema)))
            known = self._tables[schema.table] = _Table(self._client, self._indices, alias, schema, unheld)
        return known

    # ------------------------------------------------------------ registration

    def check(self, schemas: Sequence[TableSchema] = ()) -> list[Finding]:
        named = {self._table(schema).alias: schema for schema in schemas}
        return findings(self._client, self.config, named, self._identities.told)

    def prepare(self, schema: TableSchema) -> None:
        table = self._table(schema)
        settings: dict[str, Any] = {
            "index.gc_deletes": "5m",
            "index.mapping.total_fields.limit": max(1000, 4 * len(schema.columns) + 100),
            # None stands against a template, too, whose interval could hide what is written.
            "index.refresh_interval": self.config.refresh_interval,
        }
        hidden = bool(self.config.shadow)
        with _about(schema):
            if self._indices.stands(table.alias):
                self._indices.widen(table.alias, table_mapping(schema)["properties"])
                self._indices.remove(replaced_of(table.alias))
            else:
                stem = f"{alias_of(self.config.prefix, schema.table)}-g"
                index = self._indices.next_of(stem, new=hidden)
                self._indices.create(table.alias, index, table_mapping(schema), settings, hidden=hidden)
            self._indices.insist_shown(table.alias)
            self._make_tombstones(table)

    def exists(self, schema: TableSchema) -> bool:
        alias, stones = self._table(schema).alias, self._table(schema).tombstones.alias
        return any(map(self._indices.exists, (alias, stones))) or self._indices.any_of(f"{alias}-g")

    def _make_tombstones(self, table: _Table) -> None:
        """Make the index of a table's tombstones."""
        alias = table.tombstones.alias
        if not self._indices.stands(alias):
            stem = tombstones_of(alias_of(self.config.prefix, table.schema.table))
            index = self._indices.next_of(stem, new=bool(self.config.shadow))
            self._indices.create(alias, index, table.tombstones.mapping(), {}, hidden=True)

    def target(self, schema: TableSchema) -> Target:
        template = ":".join("{" + field_of(name) + "}" for name in schema.key)
        return Target(schema.table, {"alias": self._table(schema).alias, "id_template": template})

    # ------------------------------------------------------------ applying

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        if not changes:
            return []
        table = self._table(schema)
        with _about(schema):
            write = partial(self._apply, table)
            return table.unheld.held(changes, write(changes), partial(self._stored, schema), write)

    def _stored(self, schema: TableSchema, changes: Sequence[Change]) -> dict[str, Mapping[str, Any]]:
        return {key.id: found.row for key, found in self.rows(schema, [c.key for c in changes]).items()}

    def _apply(
        self, table: _Table, changes: Sequence[Change], beside: Sequence[bytes] | None = None
    ) -> list[Outcome]:
        ids = [change.key.id_within(_ID_BYTES) for change in changes]
        decided = self._older_than_a_delete(table, changes, ids)
        stones = table.tombstones
        rows = Merging(self._client, table.alias, table.document, stones, changes, ids, decided)
        buried, graves = self._tombstones(table, changes, ids, decided)
        owners: list[int] = []
        lines = self._lines(table, changes, ids, rows, decided, owners, beside or repeat(b""))
        sent = self._bulk.send(table.alias, chain(graves, lines), table.overwriting)
        noted, sent = sent[: len(graves)], sent[len(graves) :]
        if buried:
            own = dict(zip(owners, sent, strict=True))
            stood = (group for group, outcome in zip(buried, noted, strict=True) if outcome is APPLIED)
            self._take_back(table, [own[number] for group in stood for number in group])
        if len(sent) == len(changes) and all(outcome is APPLIED for outcome in noted):
            return sent
        outcomes: list[Outcome] = [decided.get(number, APPLIED) for number in range(len(changes))]
        graved = (zip(numbers, repeat(outcome)) for numbers, outcome in zip(buried, noted, strict=True))
        for number, outcome in chain(zip(owners, sent, strict=True), *graved):
            outcomes[number] = worst(outcomes[number], outcome)
        return outcomes

    def _take_back(self, table: _Table, deletes: Sequence[Outcome]) -> None:
        """Note of which deletes the tombstones tell though the cluster has not counted them."""
        if rows := sum(outcome is not APPLIED for outcome in deletes):
            insist(self._bulk.send(table.tombstones.alias, [table.tombstones.uncounted_line(rows)]))

    @staticmethod
    def _tombstones(
        table: _Table, changes: Sequence[Change], ids: Sequence[str], decided: Mapping[int, Outcome]
    ) -> tuple[list[Sequence[int]], list[bytes]]:
        """Return what is written before any row is deleted: which changes each operation is about, and it."""
        deletes: dict[int, list[int]] = {}
        for number, change in enumerate(changes):
            if change.op is _DELETE and number not in decided:
                deletes.setdefault(change.origin.partition, []).append(number)
        owners: list[Sequence[int]] = []
        lines: list[bytes] = []
        for partition, numbers in deletes.items():
            for group in groups(numbers):
                deleted = [(ids[number], changes[number].position.version) for number in group]
                owners.append(group)
                lines.append(table.tombstones.line(partition, deleted))
        return owners, lines

    @staticmethod
    def _lines(
        table: _Table,
        changes: Sequence[Change],
        ids: Sequence[str],
        rows: Merging,
        decided: dict[int, Outcome],
        owners: list[int],
        beside: Iterable[bytes],
    ) -> Iterator[bytes]:
        """Yield the operations of changes not decided yet; ``owners`` gets the number of each one's change.

        A change that cannot be written is decided.
        """
        for number, (change, key_id, more) in enumerate(zip(changes, ids, beside, strict=False)):
            if number in decided:
                continue
            if change.op is _DELETE:
                line = delete_line(change.position.version, key_id)
            else:
                row = rows.row(number) if change.partial else change.row
                if row is None:
                    continue
                try:
                    line = upsert_line(table.document, change, row, key_id, more)
                except BadValue as error:
                    decided[number] = Rejected("ES_VALUE_REFUSED", str(error))
                    continue
            owners.append(number)
            yield line

    @staticmethod
    def _older_than_a_delete(
        table: _Table, changes: Sequence[Change], ids: Sequence[str]
    ) -> dict[int, Outcome]:
        newest: dict[int, int] = {}
        suspects: dict[str, int] = {}
        for number, change in enumerate(changes):
            partition = change.origin.partition
            if partition not in newest:
                newest[partition] = table.tombstones.newest(partition)
            if change.position.version < newest[partition]:
                suspects[ids[number]] = number
        deleted = table.tombstones.later({i: changes[n].position.version for i, n in suspects.items()})
        return {suspects[key_id]: STALE for key_id in deleted}

    def rows(self, schema: TableSchema, keys: Sequence[Key]) -> dict[Key, Stored]:
        with _about(schema):
            found = self._documents(self._table(schema), [key.id_within(_ID_BYTES) for key in keys])
        pairs = ((key, found.get(key.id_within(_ID_BYTES))) for key in keys)
        # What others have put there is no row of ours to take values from.
        return {key: Stored(key.id, stored[1], stored[0]) for key, stored in pairs if stored and stored[0]}

    def _documents(self, table: _Table, ids: Sequence[str]) -> dict[str, tuple[int, dict[str, Any]]]:
        return documents(self._client, table.alias, table.document, ids)

    def truncate(self, schema: TableSchema, position: Position) -> int:
        with _about(schema):
            return self._truncate(self._table(schema), position)

    def _truncate(self, table: _Table, position: Position) -> int:
        version = position.version
        self._indices.refresh(table.alias)
        older = {"query": older_than(position), "_source": False}
        hits = self._indices.read(table.alias, older, table.document.parse)
        removed = 0
        while page := [hit["_id"] for hit in islice(hits, self.config.chunk_docs)]:
            graves = [
                table.tombstones.line(position.partition, [(key, version) for key in group])
                for group in groups(page)
            ]
            # Before any row goes: those that are gone would not be found and remembered the next time.
            insist(self._bulk.send(table.alias, graves))
            deletes = (delete_line(version, key, older_only=True) for key in page)
            outcomes = self._bulk.send(table.alias, deletes, table.overwriting)
            # One that is gone was removed, and counted, when the request was sent the first time.
            refused = [key for key, outcome in zip(page, outcomes, strict=True) if outcome is STALE]
            there = self._documents(table, refused)
            pairs = zip(page, outcomes, strict=True)
            self._take_back(table, [said for key, said in pairs if said is not STALE or key in there])
            insist(outcomes)
            removed += sum(outcome is APPLIED for outcome in outcomes)
        return removed

    def count(self, schema: TableSchema, position: Position | None = None) -> int:
        with _about(schema):
            return self._indices.count(self._table(schema).alias, position)

    # ------------------------------------------------------------ progress

    def progress(self, places: Collection[Place] | None = None) -> Progress:
        return self._progress.read(places)

    def settle(self, progress: Progress) -> None:
        self._progress.settle(progress)

    def identities(self, schemas: Sequence[TableSchema]) -> dict[TableId, str] | None:
        tables = {table.alias: table for table in map(self._table, schemas)}
        told = self._identities.watched({alias: t.tombstones.alias for alias, t in tables.items()})
        return {tables[alias].schema.table: identity for alias, identity in told.items()}

    # ------------------------------------------------------------ claims

    def claims(self, schemas: Sequence[TableSchema]) -> dict[TableId, Claim]:
        tables = {self._table(schema).alias: schema.table for schema in schemas}
        return {tables[alias]: claim for alias, claim in self._claims.standing(list(tables)).items()}

    def claim(
        self, schemas: Sequence[TableSchema], claim: Claim, instead_of: Mapping[TableId, Claim]
    ) -> list[TableId]:
        tables = {self._table(schema).alias: schema.table for schema in schemas}
        before = {alias: instead_of[table] for alias, table in tables.items() if table in instead_of}
        return [tables[alias] for alias in self._claims.put(list(tables), claim, before)]

    # ------------------------------------------------------------ reading, removing

    def scan(self, schema: TableSchema) -> Iterator[Stored]:
        table = self._table(schema)
        everything: dict[str, Any] = {"query": {"match_all": {}}}
        with _about(schema):
            self._indices.refresh(table.alias)
            for hit in self._indices.read(table.alias, everything, table.document.parse, of_rows()):
                row = row_of(table.document, hit["_source"])
                if row is None:
                    continue
                key = hit["_id"] if not hit["_id"].startswith("%sha256-") else key_of(schema, row).id
                yield Stored(key, row, version_in(hit["_source"]))

    def drop(self, schema: TableSchema) -> None:
        table = self._table(schema)
        self._indices.remove(table.alias)
        self._indices.remove(table.tombstones.alias)
        self._indices.remove(replaced_of(table.alias))
        table.tombstones.forget()
        self._claims.remove(table.alias)

    def switch(self, schema: TableSchema) -> None:
        with closing(ElasticsearchSink(self.name, serving_config(self.config))) as serving:
            mine, theirs = self._table(schema), serving._table(schema)
            filled = self._indices.exists(mine.alias)
            if filled:
                serving._make_tombstones(theirs)
                insist(
                    self._bulk.send(theirs.tombstones.alias, mine.tombstones.copies(theirs.tombstones.alias))
                )
                self._indices.refresh(theirs.tombstones.alias)
                self._indices.refresh(mine.alias)
            replaced = replaced_of(theirs.alias)
            move = partial(self._indices.swap, mine.alias, theirs.alias, replaced)
            switch(serving, self, schema, settled=self.progress(), filled=filled, move=move)
        self.drop(schema)
        if self._indices.exists(replaced):
            time.sleep(_LAST_READERS_S)
            self._indices.remove(replaced)

    def forget(self, topics: Collection[str]) -> None:
        self._progress.forget(topics)

    def maintain(self, seconds: float, leave: Collection[TableId] = ()) -> bool:
        aliases = [one.tombstones.alias for table, one in self._tables.items() if table not in leave]
        return self._tidying.run(aliases, time.monotonic() + seconds)

    def close(self) -> None:
        self._client.close()


def _about(schema: TableSchema) -> AbstractContextManager[None]:
    return about(schema.table, ("ES_INDEX_MISSING", "ES_MAPPING_CONFLICT"), _OF_ONE_TABLE)
