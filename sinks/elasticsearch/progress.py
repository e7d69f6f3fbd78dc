"""How far everything is settled, in a hidden index beside the data: one document for each partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import orjson

from headrace.model.errors import SinkError, SinkWentBack
from headrace.model.life import is_among
from headrace.model.outcome import STALE
from sinks.base import Place, Progress
from sinks.elasticsearch.bulk import Bulk, forget_line, insist, progress_id, progress_line
from sinks.elasticsearch.client import Client, path
from sinks.elasticsearch.documents import found_documents
from sinks.elasticsearch.indices import Indices
from sinks.elasticsearch.paging import Paging

__all__ = ["ProgressIndex"]

_PAGE = 500
_MAPPING = {
    "dynamic": "strict",
    "properties": {
        "topic": {"type": "keyword"},
        "partition": {"type": "integer"},
        "offset": {"type": "long"},
    },
}


class ProgressIndex:
    """The progress of one sink, or of one shadow of it.

    Args:
        client: Where to ask.
        indices: Makes the index.
        bulk: Where to write.
        alias: The alias of the index.
        shadow: The shadow's name; its documents have ids of their own.
    """

    def __init__(self, client: Client, indices: Indices, bulk: Bulk, alias: str, shadow: str) -> None:
        self._client = client
        self._indices = indices
        self._bulk = bulk
        self._alias = alias
        self._shadow = shadow
        # Place → sequence number and primary term of its document when it was looked at last.
        self._looked: dict[Place, tuple[int, int]] = {}
        # Those of documents that were not the ones that had been looked at: to be looked at first.
        self._unlooked: set[Place] = set()

    def _id(self, place: Place) -> str:
        return progress_id(*place, shadow=self._shadow)

    def read(self, places: Collection[Place] | None) -> Progress:
        """Return the progress of these places, of this very moment; or of all when None."""
        try:
            if places is not None:
                return self._told(self._looked_at(places))
            self._indices.refresh(self._alias)
            return self._told(self._indices.read(self._alias, {"query": {"match_all": {}}}, orjson.loads))
        except SinkError as error:
            if error.code != "ES_INDEX_MISSING":
                raise
            return {}

    def _looked_at(self, places: Collection[Place]) -> Iterator[dict[str, Any]]:
        """Yield the documents of places, and remember which they are."""
        named = {self._id(place): place for place in places}
        for place in places:
            self._looked.pop(place, None)
            self._unlooked.discard(place)
        for hit in self._found(places):
            self._looked[named[hit["_id"]]] = hit["_seq_no"], hit["_primary_term"]
            yield hit

    def _found(self, places: Collection[Place]) -> Iterable[dict[str, Any]]:
        ids = [self._id(place) for place in places]
        return found_documents(self._client, self._alias, ids, orjson.loads, page=Paging(_PAGE), source=True)

    def _told(self, hits: Iterable[dict[str, Any]]) -> Progress:
        kept = [(hit["_id"], hit["_source"]) for hit in hits]
        told = [(name, (source["topic"], source["partition"]), source["offset"]) for name, source in kept]
        # The index also holds what shadows have settled.
        return {place: offset for name, place, offset in told if name == self._id(place)}

    def _gone_back(self, looked: Mapping[Place, object]) -> SinkWentBack:
        # Of the others there was no document to compare with, and nobody looks at them.
        self._unlooked.update(place for place, document in looked.items() if document is not None)
        return _put_back()

    def settle(self, progress: Progress) -> None:
        """Store more of it.

        Raises:
            SinkWentBack: A document is not the one that was looked at last (``ES_PUT_BACK``): the index was
                restored. So it is said until it is looked at again.
        """
        if not progress:
            return
        if not self._unlooked.isdisjoint(progress):
            raise _put_back()
        looked = {place: self._looked.pop(place, None) for place in progress}
        lines = [
            progress_line(self._id(place), place, offset, looked[place]) for place, offset in progress.items()
        ]
        try:
            told = self._bulk.send(self._alias, lines)
            insist(told)
            # A request that was repeated, as its answer was lost, meets what it has written itself.
            if STALE in told and self._told(self._found(list(progress))) != dict(progress):
                raise self._gone_back(looked)
        except SinkError as error:
            if error.code != "ES_INDEX_MISSING":
                # Asked again, it is written over the same documents only; the first try may have been done.
                self._looked.update({place: told for place, told in looked.items() if told is not None})
                raise
            if any(looked.values()):
                raise self._gone_back(looked) from error
            self._indices.create(self._alias, f"{self._alias}-1", _MAPPING, {}, hidden=True)
            insist(self._bulk.send(self._alias, lines))

    def forget(self, topics: Collection[str]) -> None:
        """Remove the progress of some topics."""
        gone = [place for place in self.read(None) if is_among(place[0], topics)]
        if not gone:
            return
        for place in gone:
            self._looked.pop(place, None)
        insist(self._bulk.send(self._alias, [forget_line(self._id(place)) for place in gone]))
        count = path(self._alias, "_count")
        self._indices.refresh(self._alias)
        if not self._client.request("GET", count).json()["count"]:
            self._indices.remove(self._alias)


def _put_back() -> SinkWentBack:
    return SinkWentBack(
        "Elasticsearch was put back to an earlier moment while rows were written.",
        code="ES_PUT_BACK",
        hint="Nothing has to be done: what it lacks is applied again.",
    )
