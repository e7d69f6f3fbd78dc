"""Bulk requests: many operations out, one outcome each back, whatever the cluster says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import orjson

from headrace.model.change import Change
from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.outcome import APPLIED, STALE, Applied, Deferred, Outcome, Rejected, Stale
from sinks.document import BadValue, Document
from sinks.elasticsearch.client import BLOCKS, NO_SHARD, Client, path
from sinks.elasticsearch.overwriting import Overwriting
from sinks.origin import origin_members

__all__ = [
    "Bulk",
    "delete_line",
    "forget_line",
    "insist",
    "outcome_of",
    "progress_id",
    "progress_line",
    "upsert_line",
    "worst",
]

_MAX_LINE_BYTES = 95_000_000
"""Below Elasticsearch's ``http.max_content_length``, beyond which it cuts the connection."""

_INDEX = (
    b'{"index":{"_id":%b,"version":%d,"version_type":"external_gte"}}\n{"_headrace":{"version":%d%b,%b}%b\n'
)
_DELETE = b'{"delete":{"_id":%b,"version":%d,"version_type":"external_gte"}}\n'
_DELETE_OLDER = b'{"delete":{"_id":%b,"version":%d,"version_type":"external"}}\n'
_CODES = {
    "document_parsing_exception": "ES_VALUE_REFUSED",
    "mapper_parsing_exception": "ES_VALUE_REFUSED",
    "strict_dynamic_mapping_exception": "ES_UNKNOWN_FIELD",
}
_FIELD = re.compile(r"""field\s*=?\s*(?:\[|")([^\]"]+)(?:\]|")""")
_TYPE = re.compile(r"of type \[(\w+)\]")
_NAMES_ONLY = re.compile(
    r"(\[\d+:\d+\] )?mapping set to strict, "
    r"dynamic introduction of \[[^\]]*\] within \[[^\]]*\] is not allowed"
)
_WAIT_STATUSES = (408, 429)
_SHARD_WAIT_S = 2
"""The table is tried again later; the sink's other tables wait meanwhile."""
_VERSIONS = ",items.*._version"
"""What an address ends in that asks for the documents' versions, too."""
_RANK: dict[type, int] = {Applied: 0, Stale: 1, Deferred: 2, Rejected: 3}


def worst(one: Outcome, other: Outcome) -> Outcome:
    """Return the outcome of a change that took two operations."""
    return one if _RANK[type(one)] >= _RANK[type(other)] else other


def upsert_line(
    document: Document, change: Change, row: Mapping[str, Any], key_id: str, beside: bytes = b""
) -> bytes:
    """Return the operation that stores ``row`` unless something newer is there.

    ``beside`` are further members of the document's own field, each after a comma.

    Raises:
        BadValue: When a value is none of its column's type or too long.
    """
    version = change.position.version
    origin = origin_members(change.origin)
    line = _INDEX % (orjson.dumps(key_id), version, version, beside, origin, document.rest(row))
    if len(line) > _MAX_LINE_BYTES:
        raise BadValue(f"The row has {len(line)} bytes, more than a request to Elasticsearch may have.")
    return line


def delete_line(version: int, key_id: str, *, older_only: bool = False) -> bytes:
    """Return the operation that removes a row unless something newer is there.

    With ``older_only`` a row of that very version stays too.
    """
    return (_DELETE_OLDER if older_only else _DELETE) % (orjson.dumps(key_id), version)


def forget_line(key_id: str) -> bytes:
    """Return the operation that removes a document whatever its version."""
    return b'{"delete":{"_id":%b}}\n' % orjson.dumps(key_id)


def progress_id(topic: str, partition: int, *, shadow: str = "") -> str:
    """Return the id of the document that says how far one partition is settled."""
    own = f"{topic}:{partition}"
    return f"{own}:shadow:{shadow}" if shadow else own


def progress_line(
    key_id: str, place: tuple[str, int], offset: int, instead_of: tuple[int, int] | None = None
) -> bytes:
    """Return the operation that stores how far one partition is settled.

    With ``instead_of``, a document's sequence number and primary term, it replaces that document only.
    """
    fields = {"topic": place[0], "partition": place[1], "offset": offset}
    about: dict[str, Any] = {"_id": key_id}
    if instead_of is not None:
        about |= dict(zip(("if_seq_no", "if_primary_term"), instead_of, strict=True))
    return b'{"index":%b}\n%b\n' % (orjson.dumps(about), orjson.dumps(fields))


class Bulk:
    """Sends operations in requests of bounded size.

    Args:
        client: Where to.
        docs: Most operations in one request.
        size: Largest body of one request in bytes; a single larger operation goes alone.
        timeout: Seconds that the client waits for an answer. A shard that is away is waited for two seconds,
            or a quarter of this if that is less, so that the cluster can still say which one it is.
    """

    def __init__(self, client: Client, docs: int, size: int, timeout: float) -> None:
        self._shard_wait_s = max(1, min(_SHARD_WAIT_S, int(timeout / 4)))
        self._client = client
        self._docs = docs
        self._size = size

    def send(
        self, alias: str, lines: Iterable[bytes], overwriting: Overwriting | None = None
    ) -> list[Outcome]:
        """Send operations on ``alias`` and return one outcome each, in order.

        Requests are sent one after the other; while the cluster works on one, the next is drawn from
        ``lines``. With ``overwriting``, what somebody else has made the cluster refuse is sent again.

        Raises:
            SinkError: When the cluster refuses all of them, or an index is gone.
        """
        # What somebody has set as the index's pipeline may change a document, or drop it.
        target = path(alias, "_bulk") + "?require_alias=true&pipeline=_none"
        target += f"&timeout={self._shard_wait_s}s&filter_path=errors,items.*.status,items.*.error"
        outcomes: list[Outcome] = []
        with ThreadPoolExecutor(1, "bulk") as sender:
            under_way: Future[list[Outcome]] | None = None
            for chunk, last in self._chunks(lines):
                if under_way is not None:
                    outcomes += under_way.result()
                if last:
                    # Nothing is left to be drawn meanwhile.
                    outcomes += self._send(target, chunk, overwriting)
                else:
                    under_way = sender.submit(self._send, target, chunk, overwriting)
        return outcomes

    def _chunks(self, lines: Iterable[bytes]) -> Iterator[tuple[list[bytes], bool]]:
        """Yield the operations of each request, and whether they are the last."""
        chunk: list[bytes] = []
        size = 0
        for line in lines:
            if chunk and (len(chunk) == self._docs or size + len(line) > self._size):
                yield chunk, False
                chunk, size = [], 0
            chunk.append(line)
            size += len(line)
        if chunk:
            yield chunk, True

    def _send(self, target: str, lines: list[bytes], overwriting: Overwriting | None) -> list[Outcome]:
        outcomes = [outcome for outcome, _ in self._request(target, lines)]
        if overwriting is None or STALE not in outcomes:
            return outcomes
        told = target + _VERSIONS
        return overwriting.tried(lines, outcomes, lambda others: self._request(told, others))

    def _request(self, target: str, lines: list[bytes]) -> list[tuple[Outcome, int]]:
        """Return what became of each operation, and the version of its document where that is asked for."""
        reply = self._client.request(
            "POST", target, b"".join(lines), see=(413,), mimetype="application/x-ndjson"
        )
        if reply.status == 413:
            if len(lines) == 1:
                what = "Elasticsearch takes no request of the size of this row."
                return [(Rejected("ES_TOO_LARGE", what), 0)]
            half = len(lines) // 2
            return self._request(target, lines[:half]) + self._request(target, lines[half:])
        answer = reply.json()
        if not answer["errors"] and not target.endswith(_VERSIONS):
            return [(APPLIED, 0)] * len(lines)
        items = (item for items in answer["items"] for item in items.values())
        return [(outcome_of(item), item.get("_version", 0)) for item in items]


def outcome_of(item: Mapping[str, Any]) -> Outcome:
    """Return what became of one operation.

    Raises:
        SinkError: When the item's trouble is the index's, so that no other item fares better.
    """
    status: int = item["status"]
    if status < 300:
        return APPLIED
    error = item.get("error")
    if status == 409:
        return STALE
    if status == 404 and error is None:
        return APPLIED  # what was to be deleted is not there
    error = error or {}
    kind, reason = str(error.get("type", "")), str(error.get("reason", ""))
    if status in (401, 403) or kind in BLOCKS or kind in NO_SHARD:
        raise Client.refusal(status, {"error": error})
    if status >= 500 or status in _WAIT_STATUSES or kind == "shard_not_found_exception":
        return Deferred(1.0, f"{kind}: {reason}")  # the server's trouble, never the row's
    if status == 404:
        raise Client.refusal(status, {"error": error})
    code = _CODES.get(kind) or "ES_" + (kind.removesuffix("_exception").upper() or str(status))
    return Rejected(code, _said(kind, reason))


def _said(kind: str, reason: str) -> str:
    """Return what Elasticsearch says of a row without what it shows of the row's content."""
    if _NAMES_ONLY.fullmatch(reason):
        return reason
    field = _FIELD.search(reason)
    of = f" in field “{field[1]}”" if field else ""
    if "immense term" in reason:
        return f"A text{of} is longer than the 32,766 bytes that a keyword may have."
    as_type = _TYPE.search(reason)
    return f"Elasticsearch refuses a value{of}{f' of type {as_type[1]}' if as_type else ''} ({kind})."


def insist(outcomes: Sequence[Outcome]) -> None:
    """Take nothing for an answer but that it was done, now or by something newer.

    Raises:
        SinkUnavailable: When it has to be asked for again (``SINK_DEFERS``); when that is because somebody
            else writes the rows all the time (``SINK_ROWS_CONTENDED``).
        SinkError: When it was refused.
    """
    for outcome in outcomes:
        if isinstance(outcome, Deferred) and outcome.of_row:
            raise SinkUnavailable(
                f"Elasticsearch put off a part of a request: {outcome.reason}",
                code="SINK_ROWS_CONTENDED",
                hint="Let nobody else write them; it is tried again.",
            )
        if isinstance(outcome, Deferred):
            raise SinkUnavailable(
                f"Elasticsearch put off a part of a request: {outcome.reason}",
                code="SINK_DEFERS",
                hint="It is overloaded; the batch is tried again.",
            )
        if isinstance(outcome, Rejected):
            raise SinkError(f"Elasticsearch refused a part of a request: {outcome.reason}", code=outcome.code)
