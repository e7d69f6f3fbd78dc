"""Deletes that the cluster counts less often than tombstones tell of them: what was refused, or not answered.

Of a request that failed nobody knows what was done. When its deletes are sent again, a row that is still
there was not deleted before, however often tombstones tell so: all of those but one are taken back. One that
is gone was deleted, and counted, each time.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import orjson

from headrace.model.errors import SinkError
from headrace.model.outcome import APPLIED, Outcome
from sinks.elasticsearch.bulk import Bulk, insist
from sinks.elasticsearch.client import Client
from sinks.elasticsearch.documents import found_documents
from sinks.elasticsearch.paging import Paging
from sinks.elasticsearch.tombstones import Tombstones

__all__ = ["Unanswered"]

_PAGE = 2_000
_MOST = 100_000
"""So many deletes are remembered at most."""


class Unanswered:
    """The deletes of one table.

    Args:
        client: Where to ask.
        bulk: Where to write.
        alias: Of the documents.
        tombstones: Of the same table.
    """

    def __init__(self, client: Client, bulk: Bulk, alias: str, tombstones: Tombstones) -> None:
        self._client, self._bulk, self._alias = client, bulk, alias
        self._tombstones = tombstones
        # Id and version → when the first request that failed was begun, in milliseconds.
        self._since: dict[tuple[str, int], int] = {}

    def refused(self, outcomes: Collection[Outcome]) -> None:
        """Note of which deletes the tombstones tell though the cluster has not counted them."""
        self._take_back(sum(outcome is not APPLIED for outcome in outcomes))

    @contextmanager
    def sending(self, deleted: Collection[tuple[str, int]]) -> Iterator[None]:
        """Send deletes and their tombstones within this.

        Args:
            deleted: Id and version of each.
        """
        known, began = self._since, int(time.time() * 1000)
        there = self._there({one for one in deleted if one in known}) if known else set()
        try:
            yield
        except SinkError:
            if len(known) < _MOST:
                known |= {one: known.get(one, began) for one in deleted}
            raise
        if there:
            told = self._tombstones.times(there, min(known[one] for one in there))
            self._take_back(max(0, told - len(there)))
        for one in deleted if known else ():
            known.pop(one, None)

    def _there(self, deleted: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        ids = [key_id for key_id, _ in deleted]
        page = Paging(_PAGE)
        found = found_documents(self._client, self._alias, ids, orjson.loads, page=page, source=False)
        there = {doc["_id"] for doc in found}
        return {one for one in deleted if one[0] in there}

    def _take_back(self, rows: int) -> None:
        if rows:
            insist(self._bulk.send(self._tombstones.alias, [self._tombstones.uncounted_line(rows)]))
