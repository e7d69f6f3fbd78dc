"""Rows as documents: versioned writes, remembered deletes, progress beside the data."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

import orjson

from headrace.model.change import Change, Op
from headrace.model.claim import Claim
from headrace.model.errors import SinkError
from headrace.model.finding import Finding, Severity
from headrace.model.key import Key
from headrace.model.outcome import APPLIED, ROW_MISSING, STALE, Outcome, Rejected
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema
from headrace.model.values import key_of
from sinks.base import Place, Progress, Stored, Target
from sinks.document import BadValue, Document
from sinks.elasticsearch.bulk import (
    Bulk,
    delete_line,
    forget_line,
    progress_id,
    progress_line,
    tombstone_line,
    upsert_line,
    worst,
)
from sinks.elasticsearch.claims import Claims
from sinks.elasticsearch.client import Client, ElasticsearchConfig
from sinks.elasticsearch.documents import found_documents
from sinks.elasticsearch.indices import Indices
from sinks.elasticsearch.mapping import properties, table_mapping
from sinks.elasticsearch.names import (
    META_FIELD,
    alias_of,
    claims_alias,
    field_of,
    progress_alias,
    tombstones_of,
)
from sinks.elasticsearch.tombstones import ANY_PARTITION, Tombstones

__all__ = ["ElasticsearchSink"]

_ID_BYTES = 512
_OLDEST_MAJOR = 8
_READ_PAGE = 500
_PROGRESS_MAPPING = {
    "dynamic": "strict",
    "properties": {
        "topic": {"type": "keyword"},
        "partition": {"type": "integer"},
        "offset": {"type": "long"},
    },
}


class _Table:
    """What the sink knows about one table while it lives."""

    def __init__(self, client: Client, alias: str, schema: TableSchema) -> None:
        self.schema = schema
        self.alias = alias
        self.document = Document(schema, field_of, objects_only=True, reserved=(META_FIELD,))
        self.tombstones = Tombstones(client, tombstones_of(alias))


class ElasticsearchSink:
    """Mirrors tables into indexes.

    Order is kept by the cluster itself: every write carries its position as an external version.
    Partial changes read the document, merge and write; that is safe as long as one process at a time
    applies a key's changes, which the engine sees to.
    """

    kind: str = "elasticsearch"
    placement: str = "executor"
    Config: ClassVar[type[ElasticsearchConfig]] = ElasticsearchConfig

    def __init__(self, name: str, config: ElasticsearchConfig) -> None:
        self.name = name
        self.config = config
        self._client = Client(config)
        self._indices = Indices(self._client, config)
        self._bulk = Bulk(self._client, config.chunk_docs, config.chunk_bytes)
        self._claims = Claims(self._client, self._indices, claims_alias(config.prefix))
        self._tables: dict[TableId, _Table] = {}

    def _table(self, schema: TableSchema) -> _Table:
        known = self._tables.get(schema.table)
        if known is None or known.schema is not schema:
            alias = alias_of(self.config.prefix, schema.table)
            if known is not None and known.schema == schema:
                return known
            known = self._tables[schema.table] = _Table(self._client, alias, schema)
        return known

    # ------------------------------------------------------------ registration

    def check(self) -> list[Finding]:
        try:
            reply = self._client.request("GET", "/", see=(400, 405))
            version = reply.json().get("version", {}).get("number") if reply.status == 200 else None
            if version is None:
                nodes = self._client.request("GET", "/_nodes?filter_path=nodes.*.version").json()["nodes"]
                version = min(node["version"] for node in nodes.values())
            health = self._client.request("GET", "/_cluster/health?filter_path=status").json()["status"]
        except SinkError as error:
            return [Finding(Severity.ERROR, error.code, error.message, error.hint)]
        findings = [
            Finding(Severity.OK, "ES_REACHABLE", f"Elasticsearch {version} answers at {self.config.url}.")
        ]
        if reply.headers.get("x-elastic-product") != "Elasticsearch":
            message = "The server does not call itself Elasticsearch; only that is tested."
            findings.append(Finding(Severity.WARNING, "ES_OTHER_PRODUCT", message))
        elif int(version.split(".")[0]) < _OLDEST_MAJOR:
            hint = f"Upgrade to {_OLDEST_MAJOR} or later."
            findings.append(
                Finding(Severity.ERROR, "ES_VERSION", f"Elasticsearch {version} is too old.", hint)
            )
        if health == "red":
            hint = "Ask GET _cluster/allocation/explain why."
            findings.append(
                Finding(Severity.WARNING, "ES_RED", "Some index of the cluster has no primary shard.", hint)
            )
        return findings

    def prepare(self, schema: TableSchema) -> None:
        table = self._table(schema)
        settings = {
            "index.refresh_interval": self.config.refresh_interval,
            "index.gc_deletes": "5m",
            "index.mapping.total_fields.limit": max(1000, 4 * len(schema.columns) + 100),
        }
        if self._indices.exists(table.alias):
            self._indices.widen(table.alias, properties(schema))
        else:
            self._indices.create(table.alias, f"{table.alias}-g1", table_mapping(schema), settings)
        stones = table.tombstones
        if self._indices.exists(stones.alias):
            for page in stones.expired(self.config.tombstone_days):
                self._bulk.send(stones.alias, [forget_line(key) for key in page])
                self._indices.refresh(stones.alias)
        else:
            self._indices.create(stones.alias, f"{stones.alias}1", stones.mapping(), {}, hidden=True)

    def target(self, schema: TableSchema) -> Target:
        template = ":".join("{" + field_of(name) + "}" for name in schema.key)
        return Target(schema.table, {"alias": self._table(schema).alias, "id_template": template})

    # ------------------------------------------------------------ applying

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        if not changes:
            return []
        table = self._table(schema)
        ids = [change.key.id_within(_ID_BYTES) for change in changes]
        decided = self._older_than_a_delete(table, changes, ids)
        rows = self._merged(table, changes, ids, decided)
        owners: list[int] = []
        sent = self._bulk.send(table.alias, self._lines(table, changes, ids, rows, decided, owners))
        if len(sent) == len(changes) and not decided:
            return sent
        outcomes: list[Outcome] = [decided.get(number, APPLIED) for number in range(len(changes))]
        for number, outcome in zip(owners, sent, strict=True):
            outcomes[number] = worst(outcomes[number], outcome)
        return outcomes

    @staticmethod
    def _lines(
        table: _Table,
        changes: Sequence[Change],
        ids: Sequence[str],
        rows: Mapping[int, Mapping[str, Any]],
        decided: dict[int, Outcome],
        owners: list[int],
    ) -> Iterator[bytes]:
        """Yield the operations of changes not decided yet; ``owners`` gets the number of each one's change.

        A change that cannot be written is decided.
        """
        stones, now_ms = table.tombstones, int(time.time() * 1000)
        for number, (change, key_id) in enumerate(zip(changes, ids, strict=True)):
            if number in decided:
                continue
            if change.op is Op.DELETE:
                version, partition = change.position.version, change.origin.partition
                stones.note(partition, version)
                owners += (number, number)
                yield tombstone_line(stones.alias, version, partition, now_ms, key_id)
                yield delete_line(version, key_id)
                continue
            try:
                line = upsert_line(table.document, change, rows.get(number, change.row), key_id)
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
        suspects: dict[int, str] = {}
        for number, change in enumerate(changes):
            partition = change.origin.partition
            if partition not in newest:
                newest[partition] = table.tombstones.newest(partition)
            if change.position.version < newest[partition] or change.partial:
                suspects[number] = ids[number]
        if not suspects:
            return {}
        deleted = table.tombstones.versions(suspects.values())
        return {
            number: STALE
            for number, key_id in suspects.items()
            if deleted.get(key_id, 0) > changes[number].position.version
        }

    def _merged(
        self, table: _Table, changes: Sequence[Change], ids: Sequence[str], decided: dict[int, Outcome]
    ) -> dict[int, Mapping[str, Any]]:
        """Return the full rows of partial changes; those that have none are decided."""
        partial = [n for n, change in enumerate(changes) if change.partial and n not in decided]
        rows: dict[int, Mapping[str, Any]] = {}
        stored = self._documents(table, [ids[n] for n in partial])
        for number in partial:
            change, found = changes[number], stored.get(ids[number])
            if found is None:
                decided[number] = ROW_MISSING
            elif found[0] > change.position.version:
                decided[number] = STALE
            else:
                rows[number] = {**{name: found[1].get(name) for name in change.absent}, **change.row}
        return rows

    def rows(self, schema: TableSchema, keys: Sequence[Key]) -> dict[Key, Stored]:
        found = self._documents(self._table(schema), [key.id_within(_ID_BYTES) for key in keys])
        pairs = ((key, found.get(key.id_within(_ID_BYTES))) for key in keys)
        return {key: Stored(key.id, stored[1], stored[0]) for key, stored in pairs if stored is not None}

    def _documents(self, table: _Table, ids: Sequence[str]) -> dict[str, tuple[int, dict[str, Any]]]:
        document = table.document
        found = found_documents(self._client, table.alias, ids, document.parse, page=_READ_PAGE, source=True)
        return {doc["_id"]: (int(doc["_version"]), document.decode(doc["_source"])) for doc in found}

    def truncate(self, schema: TableSchema, position: Position) -> int:
        table = self._table(schema)
        version, now_ms = position.version, int(time.time() * 1000)
        self._indices.refresh(table.alias)
        older = {"query": {"range": {f"{META_FIELD}.version": {"lt": version}}}, "_source": False}
        hits = self._indices.read(table.alias, older, table.document.parse)
        table.tombstones.note(ANY_PARTITION, version)
        removed = 0
        while page := [hit["_id"] for hit in islice(hits, self.config.chunk_docs)]:
            stones = table.tombstones.alias
            self._bulk.send(
                table.alias, [tombstone_line(stones, version, ANY_PARTITION, now_ms, key) for key in page]
            )
            outcomes = self._bulk.send(
                table.alias, [delete_line(version, key, older_only=True) for key in page]
            )
            removed += sum(outcome is APPLIED for outcome in outcomes)
        return removed

    # ------------------------------------------------------------ progress

    def progress(self, places: Collection[Place] | None = None) -> Progress:
        alias = progress_alias(self.config.prefix)
        try:
            if places is not None:
                ids = [progress_id(*place) for place in places]
                hits = found_documents(self._client, alias, ids, orjson.loads, page=_READ_PAGE, source=True)
            else:
                self._indices.refresh(alias)
                hits = self._indices.read(alias, {"query": {"match_all": {}}}, orjson.loads)
            found = [hit["_source"] for hit in hits]
        except SinkError as error:
            if error.code != "ES_INDEX_MISSING":
                raise
            return {}
        return {(told["topic"], told["partition"]): told["offset"] for told in found}

    def settle(self, progress: Progress) -> None:
        if not progress:
            return
        alias = progress_alias(self.config.prefix)
        lines = [progress_line(topic, partition, offset) for (topic, partition), offset in progress.items()]
        try:
            self._bulk.send(alias, lines)
        except SinkError as error:
            if error.code != "ES_INDEX_MISSING":
                raise
            self._indices.create(alias, f"{alias}-1", _PROGRESS_MAPPING, {}, hidden=True)
            self._bulk.send(alias, lines)

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
        self._indices.refresh(table.alias)
        everything = {"query": {"match_all": {}}, "version": True}
        for hit in self._indices.read(table.alias, everything, table.document.parse):
            row = table.document.decode(hit["_source"])
            key = hit["_id"] if not hit["_id"].startswith("%sha256-") else key_of(schema, row).id
            yield Stored(key, row, int(hit["_version"]))

    def drop(self, schema: TableSchema) -> None:
        table = self._table(schema)
        self._indices.remove(table.alias)
        self._indices.remove(table.tombstones.alias)
        table.tombstones.forget()
        self._claims.remove(table.alias)

    def forget(self, topics: Collection[str]) -> None:
        alias = progress_alias(self.config.prefix)
        stored = self.progress()
        gone = [place for place in stored if place[0] in topics]
        if len(gone) == len(stored):
            self._indices.remove(alias)
        elif gone:
            self._bulk.send(alias, [forget_line(progress_id(*place)) for place in gone])

    def maintain(self, seconds: float) -> bool:
        return False

    def close(self) -> None:
        self._client.close()
