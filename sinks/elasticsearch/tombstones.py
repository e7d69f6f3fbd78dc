"""What is remembered about deleted rows, beside the index its readers see.

Elasticsearch forgets the version of a deleted document after ``index.gc_deletes`` and on every
restart of the node. So the deletes of a request are also listed, many in one small document, in a hidden
index, and a change that may be older than a delete asks there before it is written. Going forward none is:
a change is asked about only when its position is below the newest tombstone of its partition.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, TypeVar

import orjson

from sinks.elasticsearch.client import Client, path
from sinks.elasticsearch.indices import Indices, whole_search

__all__ = ["AT_ONCE", "Told", "Tombstones", "groups"]

_T = TypeVar("_T")

AT_ONCE = 128
"""Most rows in one document. Who asks about many rows may have to read a whole document for each."""

_TRUST_SECONDS = 5.0
_PAGE = 5_000
_TERMS = 10_000
"""Most rows asked about at once; a cluster takes 65,536."""
_UNCOUNTED = "uncounted"
_MAPPING = {
    "dynamic": "strict",
    "properties": {
        "keys": {"type": "keyword", "doc_values": False},
        "versions": {"type": "object", "enabled": False},
        "version": {"type": "long"},
        "partition": {"type": "integer"},
        "at": {"type": "date"},
    },
}


class Tombstones:
    """The tombstones of one table, kept under one alias."""

    def __init__(self, client: Client, indices: Indices, alias: str) -> None:
        self.alias = alias
        self._client = client
        self._indices = indices
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
                self._note(known, version)
            self._read_at = now
        return self._newest.get(partition, 0)

    def line(self, partition: int, deleted: Sequence[tuple[str, int]]) -> bytes:
        """Return the operation that remembers up to :data:`AT_ONCE` rows as deleted, each at its version."""
        keys, versions = zip(*deleted, strict=True)
        newest = max(versions)
        self._note(partition, newest)
        told = {
            "keys": keys,
            "versions": versions,
            "version": newest,
            "partition": partition,
            "at": int(time.time() * 1000),
        }
        return b'{"index":{"_index":%b}}\n%b\n' % (orjson.dumps(self.alias), orjson.dumps(told))

    def uncounted_line(self, rows: int) -> bytes:
        """Return the operation that takes back, of so many rows, that the cluster counts a delete of them.

        It counts none that it refuses. The tombstones stay: they are true. Sent twice it is there once; the
        cluster answers then that there is one already.
        """
        told = {"keys": [], "versions": {_UNCOUNTED: rows}, "at": int(time.time() * 1000)}
        about = {"create": {"_index": self.alias, "_id": uuid.uuid4().hex}}
        return orjson.dumps(about) + b"\n" + orjson.dumps(told) + b"\n"

    def copies(self, into: str) -> Iterator[bytes]:
        """Yield the operations that put all of them under another alias, too; safe to be done twice.

        What was taken back stays: the deletes of an index are counted for itself.
        """
        self._indices.refresh(self.alias)
        of_rows = {"query": {"exists": {"field": "partition"}}}
        for told in self._indices.read(self.alias, of_rows, orjson.loads):
            about = {"index": {"_index": into, "_id": told["_id"]}}
            yield orjson.dumps(about) + b"\n" + orjson.dumps(told["_source"]) + b"\n"

    def _note(self, partition: int, version: int) -> None:
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

    def later(self, changes: Mapping[str, int]) -> set[str]:
        """Return the ids, of those given with a version each, whose rows were deleted after that version.

        Raises:
            SinkUnavailable: When the cluster cannot say so of each.
        """
        if not changes:
            return set()
        self._indices.refresh(self.alias)
        found: set[str] = set()
        asked = iter(changes.items())
        while some := dict(islice(asked, _TERMS)):
            found |= self._later(some)
        return found

    def _later(self, asked: Mapping[str, int]) -> set[str]:
        any_of = {"terms": {"keys": list(asked)}}
        newer = {"range": {"version": {"gt": min(asked.values())}}}
        # The newest first: what they tell of need not be looked for in the others.
        search = {
            "query": {"bool": {"filter": [any_of, newer]}},
            "sort": [{"version": "desc"}, "_shard_doc"],
        }
        found: set[str] = set()
        with closing(self._indices.read(self.alias, search, orjson.loads)) as lists:
            for told in lists:
                listed = zip(told["_source"]["keys"], told["_source"]["versions"], strict=True)
                found |= {key_id for key_id, version in listed if version > asked.get(key_id, version)}
                if len(found) == len(asked):
                    break
        return found


class Told:
    """How many rows the tombstones of an index tell of, less those of which it was taken back.

    Copies of a shard are named by the shard's number first.

    Args:
        client: Where to ask.
        index: Of the tombstones.
    """

    def __init__(self, client: Client, index: str) -> None:
        self._client, self._index = client, index

    def since(
        self, read: Mapping[str, int], known: Mapping[str, int], most: int
    ) -> tuple[int, dict[str, int]]:
        """Return of how many rows those tell that came after some operations, and up to which that is.

        Args:
            read: Copy of a shard → number of an operation.
            known: The same of the last operation known. No tombstone may tell of it, for one that is removed
                is an operation, too.
            most: So many are read at most of each copy.
        """
        self._refresh()
        rows, last = 0, dict(read)
        for copy in read:
            told, last[copy], ended = self._read(copy, [], read[copy], most)
            rows += told
            if ended:
                last[copy] = max(last[copy], known.get(copy, -1))
        return rows, last

    def lately(self, until: Mapping[str, int], seconds: float) -> int:
        """Return of how many rows those tell that were written, by their writers' clocks, not long ago.

        Args:
            until: Copy of a shard → the last operation that is meant.
            seconds: How long ago at most.
        """
        if all(mark < 0 for mark in until.values()):
            return 0
        self._refresh()
        written = {"range": {"at": {"gte": int((time.time() - seconds) * 1000)}}}
        meant = ((copy, {"range": {"_seq_no": {"lte": mark}}}) for copy, mark in until.items())
        of_rows = {"exists": {"field": "partition"}}
        return sum(self._read(copy, [written, early, of_rows], -1, None)[0] for copy, early in meant)

    def _refresh(self) -> None:
        self._client.request("POST", path(self._index, "_refresh"))

    def _read(
        self, copy: str, wanted: Sequence[Mapping[str, Any]], last: int, most: int | None
    ) -> tuple[int, int, bool]:
        """Return how many rows, up to which operation, and whether there are no more."""
        shard = f"&preference=_shards:{copy.partition(' ')[0]}"
        target = whole_search(self._index, "hits.hits._seq_no,hits.hits._source.versions") + shard
        rows, left = 0, math.inf if most is None else most
        while left > 0:
            size = int(min(_PAGE, left))
            search = {
                "size": size,
                "query": {"bool": {"filter": [*wanted, {"range": {"_seq_no": {"gt": last}}}]}},
                "sort": [{"_seq_no": "asc"}],
                "seq_no_primary_term": True,
                "_source": ["versions"],
            }
            page = self._client.request("POST", target, search).json().get("hits", {}).get("hits", [])
            rows += sum(_counted(hit["_source"]["versions"]) for hit in page)
            left -= len(page)
            if page:
                last = page[-1]["_seq_no"]
            if len(page) < size:
                return rows, last, True
        return rows, last, False


def _counted(versions: Sequence[int] | Mapping[str, int]) -> int:
    """Return of how many rows more the cluster is to count a delete."""
    return -versions[_UNCOUNTED] if isinstance(versions, Mapping) else len(versions)


def groups(listed: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Yield those that one tombstone document tells of."""
    return (listed[at : at + AT_ONCE] for at in range(0, len(listed), AT_ONCE))
