"""The search index, read with the Elasticsearch client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from elasticsearch import Elasticsearch

from headrace.demo.compare import Found
from headrace.demo.spelling import embedded
from headrace.demo.stores.base import Asked, Facts, address
from headrace.model.errors import SinkUnavailable
from headrace.model.key import Key
from headrace.model.schema import TableSchema

__all__ = ["SearchStore"]

_PAGE = 2_000


class SearchStore:
    """Reads by alias; facts: ``alias`` and ``id_template``."""

    def __init__(self, name: str, url: str, facts: Facts) -> None:
        self.name = name
        self._facts = facts
        self._client = Elasticsearch(url, request_timeout=30, max_retries=0)

    def counts(self, tables: Sequence[str]) -> dict[str, int]:
        searches: list[dict[str, object]] = []
        for table in tables:
            searches += [{"index": self._alias(table)}, {"size": 0, "track_total_hits": True}]
        answers = self._client.msearch(searches=searches)["responses"]
        return {
            table: int(answer["hits"]["total"]["value"])
            for table, answer in zip(tables, answers, strict=True)
            if "hits" in answer
        }

    def rows(self, schema: TableSchema) -> Iterator[Found]:
        alias = self._alias(schema.table.name)
        self._client.indices.refresh(index=alias)
        pit = self._client.open_point_in_time(index=alias, keep_alive="1m")["id"]
        after = None
        try:
            while True:
                answer = self._client.search(
                    pit={"id": pit, "keep_alive": "1m"},
                    size=_PAGE,
                    sort=["_shard_doc"],
                    track_total_hits=False,
                    search_after=after,
                )
                hits = answer["hits"]["hits"]
                if not hits:
                    return
                yield from (Found(hit["_id"], embedded(schema, hit["_source"])) for hit in hits)
                pit, after = answer["pit_id"], hits[-1]["sort"]
        finally:
            self._client.close_point_in_time(id=pit)

    def some(self, schema: TableSchema, keys: Sequence[Key]) -> Iterator[Found]:
        for answer in self._asked([(schema, key) for key in keys], source=True):
            if answer.get("found"):
                yield Found(answer["_id"], embedded(schema, answer["_source"]))

    def address(self, schema: TableSchema, key: Key) -> str:
        return address(self._facts[schema.table.name]["id_template"], schema, key)

    def present(self, asked: Sequence[Asked]) -> set[Asked]:
        found = self._asked(asked, source=False)
        return {question for question, answer in zip(asked, found, strict=True) if answer.get("found")}

    def close(self) -> None:
        self._client.close()

    def _asked(self, asked: Sequence[Asked], *, source: bool) -> list[dict[str, Any]]:
        """Return the answers, in the order of the questions."""
        documents = [
            {"_index": self._alias(schema.table.name), "_id": self.address(schema, key)}
            for schema, key in asked
        ]
        found: list[dict[str, Any]] = self._client.mget(docs=documents, source=source)["docs"]
        if any("error" in answer for answer in found):
            # After a restart an index is away for a while, which does not mean that a row is missing.
            raise SinkUnavailable("Elasticsearch does not know of every row just now.", code="ES_NO_SHARD")
        return found

    def _alias(self, table: str) -> str:
        return str(self._facts[table]["alias"])
