"""What the credentials may do, asked of a cluster whose security is on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.model.finding import Finding
from sinks.elasticsearch.client import Client

__all__ = ["privilege_findings"]

_CLUSTER = ("monitor",)
_INDEXES = ("create_index", "manage", "read", "write")
_NO_SECURITY = (400, 404, 405)
"""What a cluster answers that knows no such question."""


def privilege_findings(client: Client, prefix: str) -> list[Finding]:
    """Return an error that names every privilege which the credentials lack, and what has it.

    Args:
        client: Of the cluster.
        prefix: What the sink's indexes begin with.

    Raises:
        SinkError: When the cluster does not tell.
    """
    names = [f"{prefix}*"]
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
    message = f"The credentials of {told['username']} lack {' and '.join(lacking)}."
    hint = f"A role that has all they need: PUT /_security/role/headrace {json.dumps(role)}"
    return [Finding.error("ES_FORBIDDEN", message, hint)]
