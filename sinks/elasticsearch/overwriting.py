"""Documents that somebody else has written to: told from newer ones of ours, and written over.

Elasticsearch adds one to a document's version with every write that gives none. After some of them a later
change of ours has a lower version than the document, and is refused as if it came too late. What tells the
two apart is the document's own field: it holds the version of our last write, or is not there. A change that
is not older than that is applied on the very state that was read, so that the order of our own changes is
kept. The version of such a document stays ahead of ours; later changes that are refused come here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from headrace.model.outcome import APPLIED, STALE, Deferred, Outcome
from sinks.elasticsearch.client import Client
from sinks.elasticsearch.documents import found_documents
from sinks.elasticsearch.names import VERSION_FIELD, version_in
from sinks.elasticsearch.paging import Paging
from sinks.elasticsearch.tombstones import Tombstones

__all__ = ["Overwriting"]

_PAGE = 2_000
_ROUNDS = 6
"""So often a change is tried at most, while somebody else writes the same documents."""

Send = Callable[[list[bytes]], list[tuple[Outcome, int]]]
"""Sends operations; gives of each what became of it, and the version that the document has now."""


class _Refused(NamedTuple):
    """An operation that was refused for the document's version.

    Args:
        line: The operation.
        deletes: Whether it removes the document.
        key_id: Of the document.
        version: Of our change.
        older_only: Whether a document of that very version stays.
    """

    line: bytes
    deletes: bool
    key_id: str
    version: int
    older_only: bool

    @classmethod
    def of(cls, line: bytes) -> _Refused:
        ((kind, about),) = orjson.loads(line[: line.index(b"\n")]).items()
        external = about["version_type"] == "external"
        return cls(line, kind == "delete", about["_id"], about["version"], external)

    def over(self, version: int) -> bool:
        """Return whether it takes the place of what has a version."""
        return version < self.version or (version == self.version and not self.older_only)

    def instead(self, kind: str, **about: Any) -> bytes:
        """Return the operation with another condition."""
        rest = self.line[self.line.index(b"\n") :]
        return orjson.dumps({kind: {"_id": self.key_id, **about}}) + rest


class Overwriting:
    """Applies what was refused though no newer change of ours is there.

    Args:
        client: Where to ask.
        alias: Of the documents.
        tombstones: Of the same table.
    """

    def __init__(self, client: Client, alias: str, tombstones: Tombstones) -> None:
        self._client, self._alias, self._tombstones = client, alias, tombstones

    def tried(self, lines: Sequence[bytes], outcomes: list[Outcome], send: Send) -> list[Outcome]:
        """Return the outcomes, after what somebody else has made Elasticsearch refuse was sent again.

        What is there is asked for once, a page at a time, when nothing has to be sent again.

        Args:
            lines: The operations of a request.
            outcomes: What became of them.
            send: Sends others.

        Raises:
            SinkUnavailable: When the cluster cannot say what is there.
        """
        outcomes = list(outcomes)
        left = {n: _Refused.of(lines[n]) for n, outcome in enumerate(outcomes) if outcome is STALE}
        for _ in range(_ROUNDS):
            again = self._again(left) if left else {}
            if not again:
                return outcomes
            refused, left = left, {}
            for number, (outcome, version) in zip(again, send(list(again.values())), strict=True):
                outcomes[number], one = outcome, refused[number]
                # With a version below ours an older change of ours would pass: the next round raises it.
                if outcome is STALE or (outcome is APPLIED and not one.deletes and version < one.version):
                    left[number] = one
        for number in left:
            reason = "somebody else writes the same documents at the same time"
            outcomes[number] = Deferred(0.1, reason, of_row=True)
        return outcomes

    def _again(self, refused: Mapping[int, _Refused]) -> dict[int, bytes]:
        """Return number → what to send instead; operations that came too late are left out."""
        found = {
            doc["_id"]: doc
            for doc in found_documents(
                self._client,
                self._alias,
                [one.key_id for one in refused.values()],
                orjson.loads,
                page=Paging(_PAGE),
                source=VERSION_FIELD,
            )
        }
        again: dict[int, bytes] = {}
        nameless: dict[str, int] = {}
        for number, one in refused.items():
            doc = found.get(one.key_id)
            ours = version_in(doc.get("_source", {})) if doc is not None else 0
            if (one.deletes and doc is None) or not one.over(ours):
                continue
            if not ours and not one.deletes:
                nameless[one.key_id] = one.version  # we may have deleted it
            again[number] = _line(one, doc)
        deleted = self._tombstones.later(nameless)
        return {n: line for n, line in again.items() if refused[n].key_id not in deleted}


def _line(one: _Refused, doc: Mapping[str, Any] | None) -> bytes:
    """Return the operation on the very state that was read."""
    if doc is None:
        return one.instead("create")
    if one.over(doc["_version"]):
        return one.line  # it is not refused any more
    about = {"if_seq_no": doc["_seq_no"], "if_primary_term": doc["_primary_term"]}
    return one.instead("delete" if one.deletes else "index", **about)
