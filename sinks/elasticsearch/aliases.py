"""What an alias of ours says of its index: others may have it show less, or write elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.model.errors import SinkError

__all__ = ["changed", "changed_error"]

_OTHERS = {
    "filter": "it shows some documents only",
    "index_routing": "it writes to other shards",
    "search_routing": "it searches some shards only",
}


def changed(described: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what others have made of an alias; empty when it is as we have made it.

    Args:
        described: Index → what the alias says of it.
    """
    if len(described) > 1:
        return f"it leads to {len(described)} indexes: {', '.join(sorted(described))}"
    for told in described.values():
        for word, why in _OTHERS.items():
            if word in told:
                return why
        if told.get("is_write_index") is False:
            return "its index is not the one that is written to"
    return ""


def changed_error(alias: str, described: Mapping[str, Mapping[str, Any]]) -> SinkError:
    """Return the error of an alias that others have changed, with the request that mends it.

    Of several indexes the one with the lowest number was there first: it is named as the one that stays.
    """
    stays, *others = sorted(described, key=lambda name: (len(name), name))
    actions = [{"remove": {"index": index, "alias": alias}} for index in (stays, *others)]
    add = {"add": {"index": stays, "alias": alias, "is_write_index": True}}
    body = json.dumps({"actions": [*actions, add]})
    return SinkError(
        f"Somebody has changed the alias {alias}: {changed(described)}.",
        code="ES_ALIAS_CHANGED",
        hint=f"Take the change back: POST /_aliases {body}",
    )
