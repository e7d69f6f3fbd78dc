"""What is remembered about deleted rows, beside the index its readers see.

Elasticsearch forgets the version of a deleted document after ``index.gc_deletes`` and on every
restart of the node. So each delete also writes a small document into a hidden index, and a change
that may be older than a delete asks there before it is written. Going forward none is: a change
is asked about only when its position is below the newest tombstone of its partition.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator
from typing import Any

import orjson

from sinks.elasticsearch.client import Client
from sinks.elasticsearch.documents import found_documents
from sinks.elasticsearch.indices import whole_search

__all__ = ["ANY_PARTITION", "Tombstones"]

ANY_PARTITION = -1
"""Partition of tombstones that a truncate wrote."""

_TRUST_SECONDS = 5.0
_PAGE = 5_000
_MAPPING = {
    "dynamic": "strict",
    "properties": {"version": {"type": "long"}, "partition": {"type": "integer"}, "at": {"type": "date"}},
}


class Tombstones:
    """The tombstones of one table, kept under one alias."""

    def __init__(self, client: Client, alias: str) -> None:
        self.alias = alias
        self._client = client
        self._newest: dict[int, int] = {}
        self._read_at = -math.inf

    @staticmethod
    def mapping() -> dict[str, Any]:
        """Return the mapping of their index."""
        return _MAPPING

    def newest(self, partition: int) -> int:
        """Return a version that no tombstone of the partition exceeds; at most some seconds old.

        Another process' deletes of the last seconds may be missing: the cluster itself still refuses
        what is older than those.
        """
        now = time.monotonic()
        if now - self._read_at > _TRUST_SECONDS:
            for known, version in self._read().items():
                self.note(known, version)
            self._read_at = now
        return max(self._newest.get(partition, 0), self._newest.get(ANY_PARTITION, 0))

    def note(self, partition: int, version: int) -> None:
        """Note a tombstone that is about to be written."""
        self._newest[partition] = max(version, self._newest.get(partition, 0))

    def forget(self) -> None:
        """Forget what was noted; the index is gone."""
        self._newest.clear()
        self._read_at = -math.inf

    def _read(self) -> dict[int, int]:
        latest = {"max": {"field": "version"}}
        by_partition = {"terms": {"field": "partition", "size": 10_000}, "aggs": {"latest": latest}}
        target = whole_search(self.alias, "aggregations")
        reply = self._client.request("POST", target, {"size": 0, "aggs": {"by": by_partition}})
        buckets = reply.json().get("aggregations", {}).get("by", {}).get("buckets", [])
        # Aggregations speak in doubles, which are coarser than versions: round up.
        return {b["key"]: int(math.nextafter(b["latest"]["value"], math.inf)) for b in buckets}

    def versions(self, ids: Collection[str]) -> dict[str, int]:
        """Return the exact versions at which the rows of these ids were deleted; others are left out."""
        found = found_documents(self._client, self.alias, list(ids), orjson.loads, page=_PAGE, source=False)
        return {doc["_id"]: doc["_version"] for doc in found}

    def expired(self, days: int) -> Iterator[list[str]]:
        """Yield pages of ids whose tombstones are older than ``days``; delete each page before the next."""
        older = {"range": {"at": {"lt": f"now-{days}d"}}}
        target = whole_search(self.alias, "hits.hits._id")
        while True:
            reply = self._client.request("POST", target, {"size": _PAGE, "query": older, "_source": False})
            page = [hit["_id"] for hit in reply.json().get("hits", {}).get("hits", [])]
            if not page:
                return
            yield page
