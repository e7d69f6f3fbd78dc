"""Tombstones that are older than a delete has to be remembered: removed while nothing else is done."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import suppress

from headrace.model.errors import SinkError
from sinks.elasticsearch.bulk import Bulk, forget_line, insist
from sinks.elasticsearch.client import Client
from sinks.elasticsearch.indices import Indices, whole_search

__all__ = ["Tidying"]

_EVERY_S = 3_600.0
_PAGE = 5_000


class Tidying:
    """Looks once an hour for tombstones of each table that are due.

    Args:
        client: Where to look.
        indices: Of the cluster.
        bulk: Sends what removes them.
        days: So long a row is remembered.
    """

    def __init__(self, client: Client, indices: Indices, bulk: Bulk, days: int) -> None:
        self._client, self._indices, self._bulk, self._days = client, indices, bulk, days
        self._looked: dict[str, float] = {}

    def run(self, aliases: Iterable[str], until: float) -> bool:
        """Remove what is due; return whether some may be left.

        Where the cluster refuses it is left for the next hour: whoever writes there is told.

        Args:
            aliases: Of indexes of tombstones.
            until: Nothing more is begun after this moment of the monotonic clock.
        """
        for alias in aliases:
            with suppress(SinkError):
                while time.monotonic() - self._looked.get(alias, -math.inf) >= _EVERY_S:
                    if time.monotonic() >= until:
                        return True
                    self._looked[alias] = time.monotonic()
                    if self._remove_some(alias):
                        del self._looked[alias]
        return False

    def _remove_some(self, alias: str) -> bool:
        older = {"range": {"at": {"lt": f"now-{self._days}d"}}}
        search = {"size": _PAGE, "query": older, "_source": False}
        found = self._client.request("POST", whole_search(alias, "hits.hits._id"), search).json()
        page = [hit["_id"] for hit in found.get("hits", {}).get("hits", [])]
        if page:
            # Or a cluster that puts it off would be shown the same page for ever.
            insist(self._bulk.send(alias, [forget_line(one) for one in page]))
            self._indices.refresh(alias)
        return bool(page)
