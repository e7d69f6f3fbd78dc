"""What speaks for or against using a cluster."""

from __future__ import annotations

from headrace.config.secrets import mask_url
from headrace.model.errors import SinkError
from headrace.model.finding import Finding, Severity
from sinks.elasticsearch.client import Client

__all__ = ["findings"]

_OLDEST_MAJOR = 8


def findings(client: Client, url: str) -> list[Finding]:
    """Return what a look at the cluster shows."""
    try:
        reply = client.request("GET", "/", see=(400, 405))
        version = reply.json().get("version", {}).get("number") if reply.status == 200 else None
        if version is None:
            nodes = client.request("GET", "/_nodes?filter_path=nodes.*.version").json()["nodes"]
            version = min(node["version"] for node in nodes.values())
        health = client.request("GET", "/_cluster/health?filter_path=status").json()["status"]
    except SinkError as error:
        return [Finding(Severity.ERROR, error.code, error.message, error.hint)]
    found = [Finding(Severity.OK, "ES_REACHABLE", f"Elasticsearch {version} answers at {mask_url(url)}.")]
    if reply.headers.get("x-elastic-product") != "Elasticsearch":
        message = "The server does not call itself Elasticsearch; only that is tested."
        found.append(Finding(Severity.WARNING, "ES_OTHER_PRODUCT", message))
    elif int(version.split(".")[0]) < _OLDEST_MAJOR:
        hint = f"Upgrade to {_OLDEST_MAJOR} or later."
        found.append(Finding(Severity.ERROR, "ES_VERSION", f"Elasticsearch {version} is too old.", hint))
    if health == "red":
        hint = "Ask GET _cluster/allocation/explain why."
        found.append(
            Finding(Severity.WARNING, "ES_RED", "Some index of the cluster has no primary shard.", hint)
        )
    return found
