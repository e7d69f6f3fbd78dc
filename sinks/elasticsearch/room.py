"""Whether a cluster has room for the shards of a sink."""

from __future__ import annotations

from headrace.model.finding import Finding
from sinks.elasticsearch.client import Client

__all__ = ["shard_findings"]

_LIMIT = "cluster.max_shards_per_node"


def shard_findings(client: Client, indexes: int, shards: int, replicas: int | None) -> list[Finding]:
    """Return an error when the cluster's limit of shards would be met.

    Args:
        client: Of the cluster.
        indexes: How many are to be made.
        shards: Of each.
        replicas: Of each shard; None where there is one as soon as there is a second node.

    Raises:
        SinkError: When the cluster does not tell.
    """
    # Not filtered: a filter takes the dots of a flat name apart.
    wanted = "include_defaults=true&flat_settings=true"
    told = client.request("GET", f"/_cluster/settings?{wanted}", see=(403,)).json()
    levels = ("transient", "persistent", "defaults")
    limits = [told[level][_LIMIT] for level in levels if _LIMIT in told.get(level, {})]
    if not limits:
        return []
    health = client.request("GET", "/_cluster/health").json()
    nodes = int(health["number_of_data_nodes"])
    copies = 1 + (min(1, nodes - 1) if replicas is None else replicas)
    taken = sum(int(health[f"{state}_shards"]) for state in ("active", "initializing", "unassigned"))
    needed, room = indexes * shards * copies, int(limits[0]) * nodes - taken
    if needed <= room:
        return []
    return [
        Finding.error(
            "ES_SHARDS",
            f"The sink needs {needed} shards; the cluster takes {max(room, 0)} more ({limits[0]} a node).",
            f"Raise {_LIMIT} to {int(limits[0]) + needed}; or name fewer tables with --table, or"
            " fewer shards with --set shards=…",
        )
    ]
