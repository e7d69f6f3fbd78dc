"""What speaks for or against mirroring into a Redis server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError

from headrace.model.finding import Finding
from sinks.redis.client import Client, RedisConfig, refusal
from sinks.redis.rights import lacking

__all__ = ["findings"]

_OLDEST = (5, 0)


def findings(client: Client, config: RedisConfig, tables: Sequence[str]) -> list[Finding]:
    """Return the findings of a server; an unreachable one is a finding too.

    Args:
        client: Of the server.
        config: Of the sink.
        tables: What the keys of each table's rows begin with, as far as tables are known.
    """
    try:
        if forbidden := lacking(client, config, tables):
            return [Finding.refused(forbidden)]
        info: Mapping[str, Any] = client.redis.info()
        client.redis.eval("return 1", 0)
    except RedisError as error:
        refused = refusal(error)
        return [Finding.refused(refused)]
    version = str(info.get("redis_version", "0"))
    found = [Finding.ok("REDIS_REACHABLE", f"Redis {version} answers.")]
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        found.append(
            Finding.error("REDIS_VERSION", f"Redis {version} is too old.", "Upgrade to 6.2 or later.")
        )
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        message = f"maxmemory-policy is {policy}: Redis would drop rows, and worse, versions, without a word."
        hint = "CONFIG SET maxmemory-policy noeviction  (and the same in redis.conf)"
        found.append(Finding.error("REDIS_EVICTS", message, hint))
    if info.get("role") == "slave":
        found.append(Finding.error("REDIS_READONLY", "The server is a replica.", "Use the primary's url."))
    if info.get("cluster_enabled"):
        hint = "Use a Redis without cluster mode."
        found.append(Finding.error("REDIS_CLUSTER", "Redis Cluster is not supported yet.", hint))
    if not info.get("aof_enabled"):
        message = "No append-only file: a crash of Redis loses what was written since its last dump."
        hint = "CONFIG SET appendonly yes  (and the same in redis.conf)"
        found.append(Finding.warning("REDIS_NO_AOF", message, hint))
    return found
