"""What speaks for or against using a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from headrace.config.secrets import mask_url
from headrace.model.errors import SinkError
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId, TableSchema
from sinks.elasticsearch.client import Client, ElasticsearchConfig, path
from sinks.elasticsearch.mapping import table_mapping
from sinks.elasticsearch.names import claims_alias, progress_alias, tombstones_of
from sinks.elasticsearch.privileges import privilege_findings
from sinks.elasticsearch.room import shard_findings
from sinks.elasticsearch.templates import template_findings
from sinks.elasticsearch.there import there_findings

__all__ = ["findings"]

_OLDEST_MAJOR = 8


def findings(
    client: Client,
    config: ElasticsearchConfig,
    tables: Mapping[str, TableSchema],
    indexed: Callable[[Collection[str]], Collection[str]],
) -> list[Finding]:
    """Return what a look at the cluster shows, and what it would make of a sink's indexes.

    Args:
        client: Of the cluster.
        config: The sink's.
        tables: Alias → the table whose index it is; empty when it is about the cluster alone.
        indexed: Tells which of these aliases have an index already; asked of a cluster that lets us.
    """
    found = _cluster(client, config)
    if not tables or any(finding.severity is Severity.ERROR for finding in found):
        return found
    there = indexed(tables)
    for alias, schema in tables.items():
        fields = table_mapping(schema)["properties"]
        found += there_findings(client, schema.table, alias, fields, tombstones_of(alias))
    indexes: dict[str, TableId | None] = {
        name: schema.table
        for alias, schema in tables.items()
        if alias not in there
        for name in (f"{alias}-g1", f"{tombstones_of(alias)}1")
    }
    shared = (alias(config.prefix) for alias in (progress_alias, claims_alias))
    indexes |= {
        f"{alias}-1": None
        for alias in shared
        if client.request("HEAD", path("_alias", alias), see=(404,)).status == 404
    }
    room = shard_findings(client, len(indexes), config.shards, config.replicas)
    return [*found, *template_findings(client, indexes, len(tables)), *room]


def _cluster(client: Client, config: ElasticsearchConfig) -> list[Finding]:
    try:
        if lacking := privilege_findings(client, config.prefix):
            return lacking
        reply = client.request("GET", "/", see=(400, 405))
        version = reply.json().get("version", {}).get("number") if reply.status == 200 else None
        if version is None:
            nodes = client.request("GET", "/_nodes?filter_path=nodes.*.version").json()["nodes"]
            version = min(node["version"] for node in nodes.values())
        health = client.request("GET", "/_cluster/health?filter_path=status").json()["status"]
    except SinkError as error:
        return [Finding.refused(error)]
    found = [Finding.ok("ES_REACHABLE", f"Elasticsearch {version} answers at {mask_url(config.url)}.")]
    if reply.headers.get("x-elastic-product") != "Elasticsearch":
        message = "The server does not call itself Elasticsearch; only that is tested."
        found.append(Finding.warning("ES_OTHER_PRODUCT", message))
    elif int(version.split(".")[0]) < _OLDEST_MAJOR:
        hint = f"Upgrade to {_OLDEST_MAJOR} or later."
        found.append(Finding.error("ES_VERSION", f"Elasticsearch {version} is too old.", hint))
    if health == "red":
        hint = "Ask GET _cluster/allocation/explain why."
        found.append(Finding.warning("ES_RED", "Some index of the cluster has no primary shard.", hint))
    return found
