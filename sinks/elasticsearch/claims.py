"""Claims upon indexes, kept in a hidden index of their own; sequence numbers make them atomic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from headrace.model.claim import Claim
from headrace.model.errors import SinkError
from sinks.elasticsearch.client import Client, path
from sinks.elasticsearch.documents import Paging, found_documents
from sinks.elasticsearch.indices import Indices

__all__ = ["Claims"]

_CREATE = b'{"create":{"_id":%b}}\n%b\n'
_REPLACE = b'{"index":{"_id":%b,"if_seq_no":%d,"if_primary_term":%d}}\n%b\n'
_MAPPING = {
    "dynamic": "strict",
    "properties": {
        "holder": {"type": "keyword"},
        "sink": {"type": "keyword"},
        "home": {"type": "keyword"},
        "engine": {"type": "boolean"},
        "at_ms": {"type": "date"},
    },
}


class Claims:
    """Who may write to which alias; the documents are named after the aliases."""

    def __init__(self, client: Client, indices: Indices, alias: str) -> None:
        self._client = client
        self._indices = indices
        self._alias = alias

    def standing(self, aliases: Sequence[str]) -> dict[str, Claim]:
        """Return the claims upon these aliases, those of this moment."""
        return {alias: Claim.from_dict(doc["_source"]) for alias, doc in self._documents(aliases).items()}

    def put(self, aliases: Sequence[str], claim: Claim, instead_of: Mapping[str, Claim]) -> list[str]:
        """Claim aliases; return those that stood for something else than ``instead_of`` says."""
        self._indices.create(self._alias, f"{self._alias}-1", _MAPPING, {}, hidden=True)
        # Whoever made it may not have seen it start yet.
        ready = path("_cluster", "health", self._alias) + "?wait_for_active_shards=1&timeout=30s"
        self._client.request("GET", ready, see=(408,))
        found = self._documents(aliases)
        lost = [
            alias
            for alias in aliases
            if (Claim.from_dict(found[alias]["_source"]) if alias in found else None) != instead_of.get(alias)
        ]
        wanted = [alias for alias in aliases if alias not in lost]
        body = orjson.dumps(claim.as_dict())
        lines = [
            _REPLACE % (orjson.dumps(alias), doc["_seq_no"], doc["_primary_term"], body)
            if (doc := found.get(alias))
            else _CREATE % (orjson.dumps(alias), body)
            for alias in wanted
        ]
        if not lines:
            return lost
        target = path(self._alias, "_bulk") + "?require_alias=true"
        reply = self._client.request("POST", target, b"".join(lines), mimetype="application/x-ndjson")
        for alias, item in zip(wanted, reply.json()["items"], strict=True):
            (answer,) = item.values()
            if answer["status"] == 409:
                lost.append(alias)
            elif answer["status"] >= 300:
                raise Client.refusal(answer["status"], {"error": answer.get("error", {})})
        return lost

    def remove(self, alias: str) -> None:
        """Remove the claim upon an alias; with the last one the index of claims goes."""
        if not self._indices.exists(self._alias):
            return
        self._client.request("DELETE", path(self._alias, "_doc", alias) + "?refresh=true", see=(404,))
        count = self._client.request("GET", path(self._alias, "_count")).json()["count"]
        if not count:
            self._indices.remove(self._alias)

    def _documents(self, aliases: Sequence[str]) -> dict[str, dict[str, Any]]:
        try:
            docs = found_documents(
                self._client, self._alias, aliases, orjson.loads, page=Paging(len(aliases) or 1), source=True
            )
            return {doc["_id"]: doc for doc in docs}
        except SinkError as error:
            if error.code != "ES_INDEX_MISSING":
                raise
            return {}
