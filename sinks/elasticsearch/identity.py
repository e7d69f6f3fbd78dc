"""What tells an index from one made or restored in its place, and from one whose documents somebody removed.

Elasticsearch counts the deletes of every shard. Whatever Headrace deletes has a tombstone, which tells of its
rows. An index with more deletes than its tombstones account for is one from which somebody else deletes. It
gets another identity, and what it has lost is applied again. The tombstones are read where there are more
deletes than tombstones, else once a minute, some at a time. A delete that is refused, as it comes too late,
is not counted: a document beside its tombstone takes that row back.

Deletes of ours may be under way when it is begun to count: those of which tombstones tell that are some
minutes old at most. While it is not known how many of them had been counted by then, they may all come yet.
When nothing was deleted for a minute, all are counted: one too many has been removed by somebody else, or was
under way, and either way the index is filled again.

The counts are noted in the index's ``_meta``, so that what is deleted while nobody looks is found, too. So
are the histories of its shards, and of those of its tombstones. A shard that was made empty, or of an old
copy, has another one: the index gets another identity, too. One whose tombstones are gone is left out; those
that are made later have another history.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

from headrace.model.errors import SinkError
from sinks.elasticsearch.aliases import changed
from sinks.elasticsearch.client import Client, path
from sinks.elasticsearch.counted import Counted, Counts, counted, lines
from sinks.elasticsearch.shown import hides
from sinks.elasticsearch.tombstones import Told

__all__ = ["Identities"]

_SETTINGS = ("uuid", "history.uuid")
"""An index that is restored over another keeps the one and gets another of these settings."""
_SHOWN = ("blocks", "refresh_interval", "verified_before_close")
"""Whether readers see its documents."""
_SHARDS = "number_of_shards"

_QUIET_S = 60.0
"""A request whose tombstones were written so long ago has deleted its rows, too."""
_LATELY_S = 2 * _QUIET_S
"""The same by the clocks of whoever wrote them."""
_READ_EVERY_S = 60.0
"""So often at least they are read while somebody deletes; else each is taken to tell of one row."""
_READ = 2_000
"""So many tombstones are read at most at one look at an index."""
_AGAIN_S = 0.25
"""A tombstone and its delete are counted by two shards, at two moments. The clock by which a cluster forgets
what was deleted moves every 0.2 s."""
_ROUNDS = 2
"""It does so with a refresh, and not with one that comes right after another."""
_NOTED_S = 600.0
"""So often at most the counts of one index are noted: that is a change of the cluster's state."""
_NOTES = 4
"""So many of them at one look."""
_MADE_S = 30.0
"""An index that is being filled again is not made another one so soon: while somebody goes on deleting, it
would never be full."""
_MADE = 20
"""So many are made others at one look."""

_Histories = Mapping[str, Mapping[str, str]]
"""Alias of tombstones, or nothing for the index itself → number of a shard → its history."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """What was counted at one look.

    Args:
        deletes: Of the index.
        stones: Of the index of its tombstones: documents written.
        marks: Of that index: the last operation.
        coming: How many deletes of ours may have been under way.
        read: Up to which operation of that index tombstones have been read since.
        told: Of how many rows those told.
    """

    deletes: Counts
    stones: Counts
    marks: Counts = field(default_factory=dict)
    coming: int = 0
    read: Counts = field(default_factory=dict)
    told: int = 0

    def precedes(self, now: _Moment) -> bool:
        """Return whether the same copies have counted on; one that was opened anew begins at nothing."""
        return _went_on(self.deletes, now.deletes) and _went_on(self.stones, now.stones)

    def until(self, now: _Moment) -> tuple[int, int]:
        """Return how many deletes, and how many tombstones, were counted from this one to a later one."""
        deletes, stones = (
            sum(after.values()) - sum(before.values())
            for before, after in ((self.deletes, now.deletes), (self.stones, now.stones))
        )
        return deletes, stones

    def unsure(self, told: Told) -> _Moment:
        """Return this one as a moment at which deletes of ours may have been under way."""
        return replace(self, coming=told.lately(self.marks, _LATELY_S))


def _went_on(before: Counts, now: Counts) -> bool:
    return before.keys() == now.keys() and all(count <= now[copy] for copy, count in before.items())


def _is_beyond(marks: Counts, read: Counts) -> bool:
    return any(mark > read.get(copy, -1) for copy, mark in marks.items())


class _Watch:
    """What is known of one index.

    Args:
        identity: By its settings.
        own: What is noted in its ``_meta``.
    """

    def __init__(self, identity: str, own: Mapping[str, Any]) -> None:
        self.identity = identity
        kept = own.get("counted")
        self.noted: _Moment | None = _Moment(**kept) if kept else None
        self.token = str(own.get("removed") or "")
        """What was given to the index when somebody had removed documents of it; empty before."""
        self.made_at = self.tried_at = float("-inf")
        self.found: _Histories = {}
        self.seen: _Moment | None = None
        self._since = self._read_at = float("-inf")
        self.base = self.noted
        """The moment since which it is counted."""
        self.histories: _Histories = own.get("histories") or {}
        self._noted_histories = self.histories

    def miss(self, stones: str) -> None:
        """Take the index of the tombstones for gone; those that are made later are others."""
        self.histories = {stones: {"0": ""}, **self.histories}

    def is_other(self, now: _Histories) -> bool:
        """Return whether a shard is not the one that was filled; nothing of before counts then."""
        for name, shards in now.items():
            known = self.histories.get(name, {})
            if any(known.get(number, history) != history for number, history in shards.items()):
                self.base = self.seen = None
                return True
        return False

    def knows_more(self, now: _Histories) -> bool:
        """Return whether a shard tells nothing now."""
        return any(self.histories.get(name, {}).keys() - shards.keys() for name, shards in now.items())

    def noted_as(self, moment: _Moment | None, histories: _Histories) -> None:
        """Remember what stands in the index's ``_meta``."""
        self.noted, self.histories, self._noted_histories = moment, histories, histories

    def look(self, now: _Moment, told: Told) -> bool:
        """Take what was counted; return whether somebody else seems to have removed documents.

        Args:
            now: What was counted.
            told: What its tombstones tell.
        """
        clock = time.monotonic()
        before, self.seen = self.seen, now
        if before is None or before.stones != now.stones:
            self._since = clock
        if self.base is None or not self.base.marks or not self.base.precedes(now):
            self.base = now.unsure(told)
            return False
        quiet = clock - self._since >= _QUIET_S
        excess = self._excess(self.base, now, told, quiet)
        if excess is None:
            return False  # the next look reads on
        if excess > (0 if quiet else self.base.coming):
            return True
        if quiet:
            self.base = now
        return False

    def _excess(self, base: _Moment, now: _Moment, told: Told, quiet: bool) -> int | None:
        """Return how many deletes no tombstone since accounts for; None while some are to be read."""
        deletes, stones = base.until(now)
        if deletes <= stones and not quiet and time.monotonic() - self._read_at < _READ_EVERY_S:
            return 0  # each tells of one row at least, but for a few that take it back
        read = base.read or base.marks
        if _is_beyond(now.marks, read):
            rows, read = told.since(read, now.marks, _READ)
            self.base = base = replace(base, read=read, told=base.told + rows)
        if _is_beyond(now.marks, read):
            return None
        if deletes - base.told <= base.coming:  # what is suspected is read at the next look, too
            self._read_at = time.monotonic()
        return deletes - base.told

    @property
    def due(self) -> bool:
        """Whether the counts are to be noted."""
        is_noted = self.base == self.noted and self.histories == self._noted_histories
        return not is_noted and time.monotonic() - self.tried_at >= _NOTED_S

    @property
    def rests(self) -> bool:
        """Whether the index was made another one only just."""
        return time.monotonic() - self.made_at < _MADE_S


class Identities:
    """The identities of a sink's indexes.

    Args:
        client: Where to ask.
        refresh: The refresh interval that the sink's indexes are to have.
    """

    def __init__(self, client: Client, refresh: str | None) -> None:
        self._client, self._refresh = client, refresh
        self._watches: dict[str, _Watch] = {}
        self._shards: dict[str, int] = {}
        """Index → how many shards it has; one without a home tells nothing of itself."""
        self._standing: Collection[str] = ()
        """The aliases under which there was an index, at the look before."""

    def told(self, aliases: Collection[str]) -> dict[str, str]:
        """Return alias → identity of the index under it; changes nothing."""
        return {alias: identity for alias, (_, identity) in self._found(aliases).items()}

    def watched(self, stones: Mapping[str, str]) -> dict[str, str]:
        """Return alias → identity, after a look at whether somebody removed documents.

        An index from which somebody did, and that could not be given another identity, is left out. So is one
        whose tombstones are gone.

        Args:
            stones: Alias of an index → alias of its tombstones.
        """
        found = self._found(stones, stones.values())
        pairs = {alias: stone for alias, stone in stones.items() if alias in found and stone in found}
        there = {alias: found[alias] for alias in stones if alias in found}
        self._learn(dict(there.values()))
        for alias, (index, _) in there.items():
            if alias not in pairs and stones[alias] not in self._standing:
                self._watches[index].miss(stones[alias])
        lost = self._look({found[alias][0]: (stone, found[stone][0]) for alias, stone in pairs.items()})
        told = {alias: there[alias] for alias in pairs if there[alias][0] not in lost}
        return {alias: identity + self._watches[index].token for alias, (index, identity) in told.items()}

    def _found(self, aliases: Collection[str], unread: Collection[str] = ()) -> dict[str, tuple[str, str]]:
        """Return alias → the index under it, and what its settings tell.

        None that others have changed, and none that readers do not see into, where it has any.
        """
        wanted = "ignore_unavailable=true&features=aliases,settings&filter_path=" + ",".join(
            ("*.aliases", *(f"*.settings.index.{name}" for name in (*_SETTINGS, *_SHOWN, _SHARDS)))
        )
        read, asked = frozenset(aliases), frozenset((*aliases, *unread))
        found: dict[str, tuple[str, str]] = {}
        described: dict[str, dict[str, Any]] = {}
        for named in lines(asked):
            reply = self._client.request("GET", f"{named}?{wanted}", see=(404,))
            for index, about in reply.json().items() if reply.status == 200 else ():
                settings: dict[str, Any] = about["settings"]["index"]
                self._shards[index] = int(settings.pop(_SHARDS, 1))
                told = json.dumps({k: v for k, v in settings.items() if k not in _SHOWN}, sort_keys=True)
                shown = asked - read if hides(settings, self._refresh) else asked
                for alias in shown & about.get("aliases", {}).keys():
                    described.setdefault(alias, {})[index] = about["aliases"][alias]
                    found[alias] = (index, told)
        self._standing = frozenset(described)
        return {alias: told for alias, told in found.items() if not changed(described[alias])}

    # ------------------------------------------------------------ removed by others

    def _learn(self, found: Mapping[str, str]) -> None:
        """Read what was noted of indexes that are not known yet; ``found`` has the identity of each."""
        known = self._watches
        new = {i: told for i, told in found.items() if i not in known or known[i].identity != told}
        metas = self._metas(new)
        known |= {index: _Watch(told, _own(metas.get(index, {}))) for index, told in new.items()}

    def _metas(self, indexes: Collection[str]) -> dict[str, dict[str, Any]]:
        metas: dict[str, dict[str, Any]] = {}
        for named in lines(indexes):
            target = f"{named}/_mapping?ignore_unavailable=true&filter_path=*.mappings._meta"
            for index, about in self._client.request("GET", target).json().items():
                metas[index] = about["mappings"]["_meta"]
        return metas

    def _look(self, pairs: Mapping[str, tuple[str, str]]) -> set[str]:
        """Compare what was counted before with what is counted now; return what has lost documents still.

        Args:
            pairs: Index → alias and index of its tombstones.
        """
        suspects = self._suspects(pairs)
        if suspects:
            time.sleep(_AGAIN_S)
            suspects = self._suspects(suspects)
        lost = set(suspects)
        if chosen := dict(islice(((i, s) for i, s in suspects.items() if not self._watches[i].rests), _MADE)):
            lost -= self._made_others(chosen)
        for index in islice((i for i in pairs if i not in lost and self._watches[i].due), _NOTES):
            with suppress(SinkError):  # one that refuses is that table's trouble, when it is written to
                watch = self._watches[index]
                self._note(index, watch.token, watch.base, watch.histories)
        return lost

    def _suspects(self, pairs: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
        told = counted(self._client, [*pairs, *(stone for _, stone in pairs.values())])
        counts = {index: one for index, one in told.items() if len(one.histories) == self._shards.get(index)}
        return {
            index: (alias, stone)
            for index, (alias, stone) in pairs.items()
            if index in counts and stone in counts
            if self._lacks(index, counts[index], alias, counts[stone], Told(self._client, stone))
        }

    def _lacks(self, index: str, rows: Counted, alias: str, stones: Counted, told: Told) -> bool:
        watch = self._watches[index]
        now = {"": rows.histories, alias: stones.histories}
        if watch.is_other(now):
            watch.found = now
            return True
        if watch.knows_more(now):
            return False
        watch.found = watch.histories = now
        return watch.look(_Moment(rows.deletes, stones.written, stones.last), told)

    def _made_others(self, indexes: Mapping[str, tuple[str, str]]) -> set[str]:
        """Give indexes another identity; return those that have one now.

        Elasticsearch remembers the version at which a document was deleted, and would refuse what it had
        before. It is made to forget.

        Args:
            indexes: Index → alias and index of its tombstones.
        """
        before: dict[str, str | None] = {}
        done: set[str] = set()
        try:
            for index in indexes:
                with suppress(SinkError):
                    before[index] = self._keeps_deletes(index)
                    self._keep_deletes(index, "0s")
            for _ in range(_ROUNDS if before else 0):
                time.sleep(_AGAIN_S)
                for index in before:
                    with suppress(SinkError):
                        self._client.request("POST", path(index, "_refresh"))
        finally:
            for index, kept in before.items():
                with suppress(SinkError):
                    self._keep_deletes(index, kept)
        for index in before:
            watch = self._watches[index]
            with suppress(SinkError):
                token = uuid.uuid4().hex
                moment = watch.seen.unsure(Told(self._client, indexes[index][1])) if watch.seen else None
                self._note(index, token, moment, watch.found)
                watch.token, watch.made_at = token, time.monotonic()
                watch.base = moment
                done.add(index)
        return done

    def _keeps_deletes(self, index: str) -> str | None:
        target = path(index, "_settings", "index.gc_deletes") + "?filter_path=*.settings.index.gc_deletes"
        for about in self._client.request("GET", target).json().values():
            return str(about["settings"]["index"]["gc_deletes"])
        return None

    def _keep_deletes(self, index: str, how_long: str | None) -> None:
        self._client.request("PUT", path(index, "_settings"), {"index.gc_deletes": how_long})

    def _note(self, index: str, token: str, moment: _Moment | None, histories: _Histories) -> None:
        """Write counts, histories and a token into the index's ``_meta``; whatever else is in it stays."""
        watch = self._watches[index]
        watch.tried_at = time.monotonic()
        meta = self._metas([index]).get(index, {})
        told = asdict(moment) if moment else None
        own = {**_own(meta), "counted": told, "removed": token, "histories": histories}
        self._client.request("PUT", path(index, "_mapping"), {"_meta": {**meta, "headrace": own}})
        watch.noted_as(moment, histories)


def _own(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what of an index's ``_meta`` is ours."""
    own = meta.get("headrace")
    return own if isinstance(own, dict) else {}
