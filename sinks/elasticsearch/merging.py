"""Partial changes made whole out of the documents that they leave columns of, a bounded part at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from headrace.model.change import Change
from headrace.model.outcome import ROW_MISSING, STALE, Outcome
from sinks.document import Document, readable
from sinks.elasticsearch.client import Client
from sinks.elasticsearch.documents import found_documents
from sinks.elasticsearch.names import version_in
from sinks.elasticsearch.paging import Paging
from sinks.elasticsearch.tombstones import Tombstones
from sinks.elasticsearch.unheld import restored

__all__ = ["Merging", "documents", "of_rows", "row_of"]

_FIRST_PAGE, _LARGEST_PAGE = 8, 500
_PAGE_BYTES = 8 << 20
"""So much is read at a time; a small change may leave out columns of a large row."""


def of_rows() -> Paging:
    """Return how rows of which nobody knows the size are read."""
    return Paging(_FIRST_PAGE, _LARGEST_PAGE, _PAGE_BYTES)


def documents(
    client: Client, alias: str, document: Document, ids: Sequence[str], paging: Paging | None = None
) -> dict[str, tuple[int, dict[str, Any]]]:
    """Return version and row of the documents that exist, by id; 0 of one that is no row of ours."""
    paging = paging or Paging(_LARGEST_PAGE)
    found = found_documents(client, alias, ids, document.parse, page=paging, source=True)
    return {doc["_id"]: _row_in(document, doc["_source"]) for doc in found}


def row_of(document: Document, source: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the row that a document is of; None where others have made of it what no row can be."""
    return readable(lambda: restored(document.decode(source), source))


def _row_in(document: Document, source: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    version = version_in(source)
    row = row_of(document, source) if version else None
    return (0, {}) if row is None else (version, row)


class Merging:
    """The full rows of a batch's partial changes, to be taken in the changes' order.

    Args:
        client, alias, document: The documents.
        tombstones: Deletes of the table.
        changes: The batch.
        ids: Their documents' ids.
        decided: Outcomes of changes that need no row; those that have none are added.
    """

    def __init__(
        self,
        client: Client,
        alias: str,
        document: Document,
        tombstones: Tombstones,
        changes: Sequence[Change],
        ids: Sequence[str],
        decided: dict[int, Outcome],
    ) -> None:
        self._client = client
        self._alias = alias
        self._document = document
        self._tombstones = tombstones
        self._changes = changes
        self._ids = ids
        self._decided = decided
        self._left: Iterator[int] = iter(
            [n for n, change in enumerate(changes) if change.partial and n not in decided]
        )
        self._paging = of_rows()
        self._rows: dict[int, Mapping[str, Any]] = {}

    def row(self, number: int) -> Mapping[str, Any] | None:
        """Return the full row of a partial change; None where the change is decided without one."""
        if number not in self._rows and number not in self._decided:
            self._read_on()
        return self._rows.pop(number, None)

    def _read_on(self) -> None:
        numbers = list(islice(self._left, self._paging.size))
        ids = [self._ids[n] for n in numbers]
        stored = documents(self._client, self._alias, self._document, ids, self._paging)
        missing: dict[str, int] = {}
        for number in numbers:
            change, found = self._changes[number], stored.get(self._ids[number])
            if found is None or not found[0]:
                missing[self._ids[number]] = number
            elif found[0] > change.position.version:
                self._decided[number] = STALE
            else:
                self._rows[number] = {**{name: found[1].get(name) for name in change.absent}, **change.row}
        deleted = self._tombstones.later({i: self._changes[n].position.version for i, n in missing.items()})
        for key_id, number in missing.items():
            self._decided[number] = STALE if key_id in deleted else ROW_MISSING
