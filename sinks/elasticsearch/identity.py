"""What tells an index from one made or restored in its place, and from one whose documents somebody removed.

Elasticsearch counts the deletes of every shard. Whatever Headrace deletes has a tombstone, so an index whose
count grows while no tombstone is written is one from which somebody else deletes. Such an index gets another
identity, and what it has lost is applied again.

The counts are noted in the index's ``_meta``, so that what is deleted while nobody looks is found, too.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sinks.elasticsearch.client import Client, path

__all__ = ["Identities"]

_LINE_BYTES = 3_000
"""Most bytes of names in one request: its first line may have 4 KiB."""
_SETTINGS = ("uuid", "history.uuid")
"""An index that is restored over another keeps the one and gets another of these settings."""

_QUIET_S = 60.0
"""A request whose tombstones were written so long ago has deleted its rows, too."""
_AGAIN_S = 0.25
"""A tombstone and its delete are counted by two shards, at two moments. The clock by which a cluster forgets
what was deleted moves every 0.2 s."""
_ROUNDS = 2
"""It does so with a refresh, and not with one that comes right after another."""
_NOTED_S = 600.0
"""So often at most the counts of one index are noted: that is a change of the cluster's state."""
_NOTES = 4
"""So many of them at one look."""

_Counts = Mapping[str, int]
"""Copy of a shard → how many operations of a kind it has counted since it was opened."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """What was counted at one look.

    Args:
        deletes: Of the index.
        stones: Of the index of its tombstones: documents written.
    """

    deletes: _Counts
    stones: _Counts

    def removed_until(self, now: _Moment) -> bool:
        """Return whether documents went without a tombstone."""
        went_on = _went_on(self.deletes, now.deletes) and self.deletes != now.deletes
        return went_on and self.stones == now.stones


def _went_on(before: _Counts, now: _Counts) -> bool:
    """Return whether the same copies have counted on; one that was opened anew begins at nothing."""
    return before.keys() == now.keys() and all(count <= now[copy] for copy, count in before.items())


class _Watch:
    """What is known of one index.

    Args:
        identity: By its settings.
        meta: Its ``_meta``.
    """

    def __init__(self, identity: str, meta: dict[str, Any]) -> None:
        self.identity = identity
        self.meta = meta
        kept = meta.get("headrace", {}).get("counted")
        self.noted: _Moment | None = _Moment(**kept) if kept else None
        self.noted_at = float("-inf")
        self.base = self.noted
        """Counted while no delete of ours was under way."""
        self._seen: _Moment | None = None
        self._since = float("-inf")

    @property
    def token(self) -> str:
        """What was given to the index when somebody had removed documents of it; empty before."""
        return str(self.meta.get("headrace", {}).get("removed", ""))

    def look(self, now: _Moment) -> bool:
        """Take what was counted; return whether somebody else seems to have removed documents."""
        clock = time.monotonic()
        before, self._seen = self._seen, now
        if before is not None and before.stones != now.stones:
            self.base = None
            self._since = clock if _went_on(before.stones, now.stones) else float("-inf")
        if self.base is not None and self.base.removed_until(now):
            return True
        if clock - self._since >= _QUIET_S:
            self.base = now
        return False

    @property
    def due(self) -> bool:
        """Whether the counts are to be noted."""
        return (
            self.base is not None and self.base != self.noted and time.monotonic() - self.noted_at >= _NOTED_S
        )

    def pass_over(self) -> None:
        """Take what was removed until the last look as known."""
        self.base = self._seen

    def described(self, token: str) -> dict[str, Any]:
        """Return the index's ``_meta`` with the counts and a token; whatever else is in it stays."""
        counted = {"deletes": self.base.deletes, "stones": self.base.stones} if self.base else None
        own = {**self.meta.get("headrace", {}), "counted": counted, "removed": token}
        return {**self.meta, "headrace": own}

    def noted_as(self, meta: dict[str, Any]) -> None:
        """Take the index's ``_meta`` as it is now."""
        self.meta, self.noted, self.noted_at = meta, self.base, time.monotonic()


class Identities:
    """The identities of a sink's indexes.

    Args:
        client: Where to ask.
        gc_deletes: For how long Elasticsearch is to remember the version of a deleted document.
    """

    def __init__(self, client: Client, gc_deletes: str) -> None:
        self._client = client
        self._gc_deletes = gc_deletes
        self._watches: dict[str, _Watch] = {}

    def told(self, aliases: Collection[str]) -> dict[str, str]:
        """Return alias → identity of the index under it; changes nothing."""
        return {alias: identity for alias, (_, identity) in self._found(aliases).items()}

    def watched(self, stones: Mapping[str, str]) -> dict[str, str]:
        """Return alias → identity, after a look at whether somebody removed documents.

        Args:
            stones: Alias of an index → alias of its tombstones.
        """
        found = self._found([*stones, *stones.values()])
        pairs = {alias: stone for alias, stone in stones.items() if alias in found and stone in found}
        self._learn({found[alias][0]: found[alias][1] for alias in pairs})
        self._look({found[alias][0]: found[stone][0] for alias, stone in pairs.items()})
        told = {alias: found[alias] for alias in stones if alias in found}
        return {alias: identity + self._token(index) for alias, (index, identity) in told.items()}

    def _token(self, index: str) -> str:
        return self._watches[index].token if index in self._watches else ""

    def _found(self, aliases: Collection[str]) -> dict[str, tuple[str, str]]:
        """Return alias → the index under it, and what its settings tell."""
        wanted = "ignore_unavailable=true&features=aliases,settings&filter_path=" + ",".join(
            ("*.aliases", *(f"*.settings.index.{name}" for name in _SETTINGS))
        )
        found: dict[str, tuple[str, str]] = {}
        for named in _lines(aliases):
            reply = self._client.request("GET", f"{named}?{wanted}", see=(404,))
            for index, about in reply.json().items() if reply.status == 200 else ():
                told = json.dumps(about["settings"]["index"], sort_keys=True)
                found |= {alias: (index, told) for alias in about.get("aliases", {}) if alias in aliases}
        return found

    # ------------------------------------------------------------ removed by others

    def _learn(self, found: Mapping[str, str]) -> None:
        """Read what was noted of indexes that are not known yet; ``found`` has the identity of each."""
        new = {
            i: told
            for i, told in found.items()
            if i not in self._watches or self._watches[i].identity != told
        }
        metas: dict[str, Any] = {}
        for named in _lines(new):
            reply = self._client.request("GET", f"{named}/_mapping?filter_path=*.mappings._meta")
            metas |= {index: about["mappings"]["_meta"] for index, about in reply.json().items()}
        self._watches |= {index: _Watch(told, metas.get(index, {})) for index, told in new.items()}

    def _look(self, pairs: Mapping[str, str]) -> None:
        """Compare what was counted before with what is counted now.

        Args:
            pairs: Index → index of its tombstones.
        """
        suspects = self._suspects(pairs)
        if suspects:
            time.sleep(_AGAIN_S)
            suspects = self._suspects(suspects)
        for index in suspects:
            self._make_another(index)
        for index in islice((index for index in pairs if self._watches[index].due), _NOTES):
            self._note(index, self._token(index))

    def _suspects(self, pairs: Mapping[str, str]) -> dict[str, str]:
        counts = self._counts([*pairs, *pairs.values()])
        return {
            index: stone
            for index, stone in pairs.items()
            if index in counts and stone in counts
            if self._watches[index].look(_Moment(counts[index][0], counts[stone][1]))
        }

    def _counts(self, indexes: Collection[str]) -> dict[str, tuple[_Counts, _Counts]]:
        """Return index → what the primary of each shard has counted: deletes, and documents written."""
        shard = "indices.*.shards.*"
        wanted = ("routing.primary", "routing.node", "indexing.delete_total", "indexing.index_total")
        asked = "level=shards&ignore_unavailable=true&filter_path=" + ",".join(
            f"{shard}.{one}" for one in wanted
        )
        counts: dict[str, tuple[_Counts, _Counts]] = {}
        for named in _lines(indexes):
            reply = self._client.request("GET", f"{named}/_stats/indexing?{asked}")
            for index, about in reply.json().get("indices", {}).items():
                primaries = {
                    f"{number} {copy['routing']['node']}": copy["indexing"]
                    for number, copies in about["shards"].items()
                    for copy in copies
                    if copy["routing"]["primary"]
                }
                deleted = {name: told["delete_total"] for name, told in primaries.items()}
                written = {name: told["index_total"] for name, told in primaries.items()}
                counts[index] = deleted, written
        return counts

    def _make_another(self, index: str) -> None:
        """Give the index another identity.

        Elasticsearch remembers the version at which a document was deleted, and would refuse what it had
        before. It is made to forget.
        """
        self._keep_deletes(index, "0s")
        for _ in range(_ROUNDS):
            time.sleep(_AGAIN_S)
            self._client.request("POST", path(index, "_refresh"))
        self._keep_deletes(index, self._gc_deletes)
        self._watches[index].pass_over()
        self._note(index, uuid.uuid4().hex)

    def _keep_deletes(self, index: str, how_long: str) -> None:
        self._client.request("PUT", path(index, "_settings"), {"index.gc_deletes": how_long})

    def _note(self, index: str, token: str) -> None:
        meta = self._watches[index].described(token)
        self._client.request("PUT", path(index, "_mapping"), {"_meta": meta})
        self._watches[index].noted_as(meta)


def _lines(names: Collection[str]) -> Iterator[str]:
    """Yield addresses that name some at a time."""
    line = ""
    for name in map(path, names):
        if line and len(line) + len(name) > _LINE_BYTES:
            yield line
            line = ""
        line = f"{line},{name.removeprefix('/')}" if line else name
    if line:
        yield line
