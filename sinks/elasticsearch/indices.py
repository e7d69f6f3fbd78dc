"""The indexes of a sink: creating, widening, removing, and reading one through to its end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from headrace.model.errors import SinkError
from sinks.elasticsearch.client import Client, ElasticsearchConfig, Reply, path

__all__ = ["Indices", "whole_search"]

_PAGE = 2_000


def whole_search(alias: str | None, only: str = "") -> str:
    """Return the address of a search that fails when a shard cannot answer, not one that leaves it out.

    Args:
        alias: What to search; None when the body names a point in time.
        only: Comma-separated paths of the answer that are wanted; empty for all.
    """
    wanted = f"&filter_path={only}" if only else ""
    return (path(alias, "_search") if alias else "/_search") + "?allow_partial_search_results=false" + wanted


class Indices:
    """Index administration by alias: every index is reached through one."""

    def __init__(self, client: Client, config: ElasticsearchConfig) -> None:
        self._client = client
        self._config = config

    def _settings(self, extra: dict[str, Any]) -> dict[str, Any]:
        settings: dict[str, Any] = {"index.number_of_shards": self._config.shards, **extra}
        if self._config.replicas is None:
            return {**settings, "index.auto_expand_replicas": "0-1"}
        return {**settings, "index.number_of_replicas": self._config.replicas}

    def exists(self, alias: str) -> bool:
        """Return whether an alias of this name leads to an index."""
        return self._client.request("HEAD", path("_alias", alias), see=(404,)).status == 200

    def create(
        self,
        alias: str,
        index: str,
        mapping: dict[str, Any],
        settings: dict[str, Any],
        *,
        hidden: bool = False,
    ) -> None:
        """Create ``index`` under ``alias`` unless the alias exists; safe when two processes do so at once.

        Raises:
            SinkError: When the name is taken by something else (``ES_NAME_TAKEN``).
        """
        if self.exists(alias):
            return
        described: dict[str, Any] = {"is_write_index": True, **({"is_hidden": True} if hidden else {})}
        body = {
            "settings": self._settings({**settings, **({"index.hidden": True} if hidden else {})}),
            "mappings": mapping,
            "aliases": {alias: described},
        }
        reply = self._client.request("PUT", path(index), body, see=(400,))
        if reply.status != 400 or self.exists(alias):
            return
        if _error_type(reply) == "resource_already_exists_exception":
            add = {"actions": [{"add": {"index": index, "alias": alias, **described}}]}
            self._client.request("POST", "/_aliases", add)
            return
        if _error_type(reply) == "invalid_alias_name_exception":
            message = f"There is an index named {alias}, where the sink needs an alias of that name."
            raise SinkError(message, code="ES_NAME_TAKEN", hint="Give the sink another prefix.")
        raise Client.refusal(reply.status, reply.body)

    def widen(self, alias: str, properties: dict[str, Any]) -> None:
        """Add fields that are missing.

        Raises:
            SinkError: When a field exists with another type (``ES_MAPPING_CONFLICT``).
        """
        reply = self._client.request("PUT", path(alias, "_mapping"), {"properties": properties}, see=(400,))
        if reply.status == 400:
            refused = Client.refusal(400, reply.body)
            raise SinkError(
                f"The index under {alias} cannot take the table's columns: {refused.message}",
                code="ES_MAPPING_CONFLICT",
                hint="A column changed its type. Remove the table from the sink and add it again.",
            )

    def remove(self, alias: str) -> None:
        """Delete every index under ``alias``."""
        reply = self._client.request("GET", path("_alias", alias), see=(404,))
        if reply.status == 200:
            for index in reply.json():
                self._client.request("DELETE", path(index), see=(404,))

    def refresh(self, alias: str) -> None:
        """Let searches see everything written so far.

        Raises:
            SinkUnavailable: When a shard did not answer.
        """
        shards = self._client.request("POST", path(alias, "_refresh")).json()["_shards"]
        if shards["failed"]:
            raise Client.refusal(503, {"error": shards["failures"][0]["reason"]})

    def read(
        self, alias: str, body: dict[str, Any], parse: Callable[[bytes], Any]
    ) -> Generator[dict[str, Any]]:
        """Yield every hit of a search, as of now, however many there are.

        Args:
            alias: What to read.
            body: The search without paging; a sort of its own has to end with ``_shard_doc``.
            parse: Parser of an answer's bytes.
        """
        opened = self._client.request("POST", path(alias, "_pit") + "?keep_alive=5m").json()["id"]
        try:
            search = {"size": _PAGE, "sort": ["_shard_doc"], "track_total_hits": False, **body}
            after: dict[str, Any] = {}
            while True:
                page = {**search, **after, "pit": {"id": opened, "keep_alive": "5m"}}
                # No filter_path: it makes the server write _source anew, numbers as doubles.
                hits = parse(self._client.request("POST", whole_search(None), page).body)["hits"]["hits"]
                yield from hits
                if len(hits) < _PAGE:
                    return
                after = {"search_after": [int(value) for value in hits[-1]["sort"]]}
        finally:
            self._client.request("DELETE", "/_pit", {"id": opened}, see=(404,))


def _error_type(reply: Reply) -> str:
    error = reply.json().get("error", {})
    return str(error.get("type", "")) if isinstance(error, dict) else ""
