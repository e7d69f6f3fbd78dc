"""What the credentials may do, asked of a cluster whose security is on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.model.finding import Finding
from sinks.elasticsearch.client import Client, ElasticsearchConfig

__all__ = ["privilege_findings"]

_CLUSTER = ("monitor",)
_INDEXES = ("create_index", "manage", "read", "write")
_NO_SECURITY = (400, 404, 405)
"""What a cluster answers that knows no such question."""


def privilege_findings(client: Client, config: ElasticsearchConfig) -> list[Finding]:
    """Return an error that names every privilege which the credentials lack, and what has it.

    Args:
        client: Of the cluster.
        config: The sink's.

    Raises:
        SinkError: When the cluster does not tell.
    """
    names = [f"{config.prefix}*"]
    asked = {"cluster": _CLUSTER, "index": [{"names": names, "privileges": _INDEXES}]}
    reply = client.request("POST", "/_security/user/_has_privileges", asked, see=_NO_SECURITY)
    told: Mapping[str, Any] = reply.json() if reply.status == 200 else {"has_all_requested": True}
    if told["has_all_requested"]:
        return []
    of_cluster = [name for name in _CLUSTER if not told["cluster"][name]]
    of_indexes = [name for name in _INDEXES if not told["index"][names[0]][name]]
    lacking = [
        f"{', '.join(of)} {where}"
        for of, where in ((of_cluster, "on the cluster"), (of_indexes, f"on the indexes {names[0]}"))
        if of
    ]
    role = {"cluster": _CLUSTER, "indices": [{"names": names, "privileges": _INDEXES}]}
    who = f"user {told['username']}"
    hint = f"Give it a role of its own: PUT /_security/role/headrace {json.dumps(role)}"
    if config.api_key is not None:  # which may less than the user whose it is
        key = json.dumps({"name": "headrace", "role_descriptors": {"headrace": role}})
        who, hint = f"API key of {told['username']}", f"Make another one: POST /_security/api_key {key}"
    return [Finding.error("ES_FORBIDDEN", f"The {who} lacks {' and '.join(lacking)}.", hint)]
