"""The indexes of a sink: creating, widening, removing, and reading one through to its end."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

from headrace.model.errors import SinkError
from headrace.model.position import Position
from sinks.elasticsearch.aliases import changed, changed_error
from sinks.elasticsearch.client import Client, ElasticsearchConfig, Reply, path
from sinks.elasticsearch.names import VERSION_FIELD
from sinks.elasticsearch.paging import Paging
from sinks.elasticsearch.shown import cuts, cuts_error, hides, hides_error
from sinks.elasticsearch.templates import template_findings
from sinks.elasticsearch.there import name_taken

__all__ = ["Indices", "older_than", "whole_search"]

_LIMITS = ("depth_limit", "ignore_above")
_PAGE = 2_000
_NAMED = re.compile(r".+(?:-g|-deleted)[0-9]+")


def whole_search(alias: str | None, only: str = "") -> str:
    """Return the address of a search that fails when a shard cannot answer, not one that leaves it out.

    Args:
        alias: What to search; None when the body names a point in time.
        only: Comma-separated paths of the answer that are wanted; empty for all.
    """
    wanted = f"&filter_path={only}" if only else ""
    return (path(alias, "_search") if alias else "/_search") + "?allow_partial_search_results=false" + wanted


def older_than(position: Position) -> dict[str, Any]:
    """Return the query for documents below a position, of its partition.

    Those that others have put there tell no version. They count as the oldest, and so with the first
    partition.
    """
    older = {"range": {VERSION_FIELD: {"gte": position.floor, "lt": position.version}}}
    if position.floor:
        return older
    unknown = {"bool": {"must_not": {"exists": {"field": VERSION_FIELD}}}}
    return {"bool": {"should": [older, unknown]}}


class Indices:
    """Index administration by alias: every index is reached through one."""

    def __init__(self, client: Client, config: ElasticsearchConfig) -> None:
        self._client = client
        self._config = config

    def _settings(self, extra: dict[str, Any]) -> dict[str, Any]:
        # A template could have what counts as written lie in memory for a while, or be changed by others.
        settings: dict[str, Any] = {
            "index.number_of_shards": self._config.shards,
            "index.translog.durability": "request",
            "index.default_pipeline": "_none",
            "index.final_pipeline": "_none",
            **extra,
        }
        if self._config.replicas is None:
            return {**settings, "index.auto_expand_replicas": "0-1"}
        return {**settings, "index.number_of_replicas": self._config.replicas}

    def exists(self, alias: str) -> bool:
        """Return whether an alias of this name leads to an index."""
        return self._client.request("HEAD", path("_alias", alias), see=(404,)).status == 200

    def stands(self, alias: str) -> bool:
        """Return whether an alias leads to an index, as we have made it.

        Raises:
            SinkError: When others have changed the alias (``ES_ALIAS_CHANGED``).
        """
        reply = self._client.request("GET", path("_alias", alias), see=(404,))
        if reply.status == 404:
            return False
        described = {index: about["aliases"].get(alias, {}) for index, about in reply.json().items()}
        if changed(described):
            raise changed_error(alias, described)
        return bool(described)

    def under(self, alias: str) -> list[str]:
        """Return the indexes that an alias leads to."""
        reply = self._client.request("GET", path("_alias", alias), see=(404,))
        return list(reply.json()) if reply.status == 200 else []

    def any_of(self, stem: str) -> bool:
        """Return whether there is an index named ``stem`` and a number, with an alias or without."""
        target = path(f"{stem}*", "_alias") + "?expand_wildcards=all"
        named = re.compile(re.escape(stem) + r"[0-9]+$")
        return any(named.match(name) for name in self._client.request("GET", target).json())

    def next_of(self, stem: str, *, new: bool) -> str:
        """Return a name for an index: ``stem`` and a number.

        Without ``new`` it is that of the latest index of the kind which lost its alias, if there is one.
        """
        target = path(f"{stem}*", "_alias") + "?expand_wildcards=all"
        named = re.compile(re.escape(stem) + r"([0-9]+)$")
        found = {
            int(match[1]): about["aliases"]
            for name, about in self._client.request("GET", target).json().items()
            if (match := named.match(name))
        }
        lost = [] if new else [number for number, aliases in found.items() if not aliases]
        return f"{stem}{max(lost) if lost else max(found, default=0) + 1}"

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
            SinkError: When the name is taken by something else (``ES_NAME_TAKEN``), or a template of the
                cluster makes an index that cuts rows (``ES_TEMPLATE_CHANGES``); that one is gone again.
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
        if reply.status != 400:
            self._insist_whole(index)
            return
        if self.exists(alias):
            return
        if _error_type(reply) == "resource_already_exists_exception":
            add = {"actions": [{"add": {"index": index, "alias": alias, **described}}]}
            self._client.request("POST", "/_aliases", add)
            return
        if _error_type(reply) == "invalid_alias_name_exception":
            message, hint = name_taken(alias)
            raise SinkError(message, code="ES_NAME_TAKEN", hint=hint)
        raise Client.refusal(reply.status, reply.body)

    def _insist_whole(self, index: str) -> None:
        """Remove an index that was just made, when it is not what was asked for."""
        for made in self._client.request("GET", path(index)).json().values():
            if found := cuts(made):
                told = [
                    (told.message, told.hint)
                    for told in template_findings(self._client, {index: None})
                    if told.code == "ES_TEMPLATE_CHANGES" and any(cut in told.message for cut in found)
                ]
                self._client.request("DELETE", path(index), see=(404,))
                raise cuts_error(index, found, told)

    def insist_shown(self, alias: str) -> None:
        """Insist that an index keeps whole rows, and lets readers see them.

        Raises:
            SinkError: It cuts rows (``ES_TEMPLATE_CHANGES``).
            SinkUnavailable: It does not show them now (``ES_HIDDEN``).
        """
        for index, made in self._client.request("GET", path(alias)).json().items():
            if found := cuts(made):
                raise cuts_error(index, found)
            wanted = self._config.refresh_interval
            if hidden := hides(made["settings"]["index"], wanted):
                raise hides_error(index, hidden, wanted)

    def widen(self, alias: str, properties: dict[str, Any]) -> None:
        """Add fields that are missing; the limits that an operator has given a field stay.

        Raises:
            SinkError: When a field exists with another type (``ES_MAPPING_CONFLICT``).
        """
        there = self._client.request("GET", path(alias, "_mapping")).json().values()
        known = [index["mappings"].get("properties", {}) for index in there]
        missing = {
            name: wanted
            for name, wanted in properties.items()
            if not all(_holds(fields.get(name, {}), wanted) for fields in known)
        }
        if not missing:
            return
        reply = self._client.request("PUT", path(alias, "_mapping"), {"properties": missing}, see=(400,))
        if reply.status == 400:
            refused = Client.refusal(400, reply.body)
            raise SinkError(
                f"The index under {alias} cannot take the table's columns: {refused.message}",
                code="ES_MAPPING_CONFLICT",
                hint="A column changed its type: the table has to be filled anew.",
            )

    def remove(self, alias: str) -> None:
        """Delete every index of ours under ``alias``; one of others only loses the alias."""
        for index in self.under(alias):
            if self._is_ours(index, alias):
                self._client.request("DELETE", path(index), see=(404,))
            else:
                self._client.request("DELETE", path(index, "_alias", alias), see=(404,))

    def _is_ours(self, index: str, alias: str) -> bool:
        """Return whether an index has such a name as :meth:`create` is given; others may share the alias."""
        named = _NAMED.fullmatch(index) is not None or index == f"{alias}-1"
        return named and index.startswith(self._config.prefix)

    def swap(self, taken: str, alias: str, aside: str) -> None:
        """In one step, let ``alias`` lead to what ``taken`` leads to, and ``aside`` to what ``alias`` led to.

        Nothing is removed: a request that is under way at an index which goes would fail.
        """
        came = self.under(taken)
        actions: list[dict[str, Any]] = []
        for index in self.under(alias):
            if self._is_ours(index, alias):
                # Or a reader's pattern, which finds it by the alias as well, would find both.
                self._client.request("PUT", path(index, "_settings"), {"index.hidden": True})
                actions.append({"add": {"index": index, "alias": aside, "is_hidden": True}})
            actions.append({"remove": {"index": index, "alias": alias}})
        for index in came:
            actions.append({"add": {"index": index, "alias": alias, "is_write_index": True}})
            actions.append({"remove": {"index": index, "alias": taken}})
        self._client.request("POST", "/_aliases", {"actions": actions})
        for index in came:
            self._client.request("PUT", path(index, "_settings"), {"index.hidden": False})

    def refresh(self, alias: str) -> None:
        """Let searches see everything written so far.

        Raises:
            SinkUnavailable: When a shard did not answer.
        """
        try:
            shards = self._client.request("POST", path(alias, "_refresh")).json()["_shards"]
        except SinkError as error:
            if error.code == "ES_INDEX_MISSING":
                # So says a node, too, that has not got its state back yet. A search tells the two apart.
                self._client.request("POST", whole_search(alias), {"size": 0})
            raise
        if shards["failed"]:
            raise Client.refusal(503, {"error": shards["failures"][0]["reason"]})

    def count(self, alias: str, position: Position | None) -> int:
        """Return how many documents are older than a position, of its partition; all of them without one.

        Raises:
            SinkUnavailable: When a shard did not answer.
        """
        self.refresh(alias)
        wanted = older_than(position) if position else {"match_all": {}}
        body = {"query": wanted, "size": 0, "track_total_hits": True}
        reply = self._client.request("POST", whole_search(alias, "hits.total"), body)
        return int(reply.json()["hits"]["total"]["value"])

    def read(
        self, alias: str, body: dict[str, Any], parse: Callable[[bytes], Any], paging: Paging | None = None
    ) -> Generator[dict[str, Any]]:
        """Yield every hit of a search, as of now, however many there are.

        Args:
            alias: What to read.
            body: The search without paging; a sort of its own has to end with ``_shard_doc``.
            parse: Parser of an answer's bytes.
            paging: How many hits a request asks for; of small ones when None.
        """
        paging = paging or Paging(_PAGE)
        opened = self._client.request("POST", path(alias, "_pit") + "?keep_alive=5m").json()["id"]
        try:
            search = {"sort": ["_shard_doc"], "track_total_hits": False, **body}
            search["pit"] = {"id": opened, "keep_alive": "5m"}
            while True:
                # No filter_path: it makes the server write _source anew, numbers as doubles.
                reply, asked = paging.ask(self._client, whole_search(None), partial(_sized, search))
                hits = parse(reply.body)["hits"]["hits"]
                yield from hits
                if len(hits) < asked:
                    return
                search["search_after"] = [int(value) for value in hits[-1]["sort"]]
        finally:
            self._client.request("DELETE", "/_pit", {"id": opened}, see=(404,))


def _sized(search: Mapping[str, Any], size: int) -> dict[str, Any]:
    return {**search, "size": size}


def _error_type(reply: Reply) -> str:
    error = reply.json().get("error", {})
    return str(error.get("type", "")) if isinstance(error, dict) else ""


def _holds(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a field is as it is wanted; its limits may be others."""
    return all(
        there.get(name) == value or (name in _LIMITS and name in there) for name, value in wanted.items()
    )
