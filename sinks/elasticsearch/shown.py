"""Whether an index keeps whole rows, and shows them to its readers: templates and settings forbid it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.model.errors import SinkError, SinkUnavailable
from sinks.elasticsearch.client import path

__all__ = ["cuts", "cuts_error", "hides", "hides_error"]

_MODES = ("logsdb", "time_series")
_REBUILT = ("synthetic", "disabled")
_CLOSED = "index.verified_before_close"
_NEVER = re.compile(r"-.*|0+[a-z]*")
"""Intervals at which nothing is ever done."""


def cuts(made: Mapping[str, Any]) -> list[str]:
    """Return what keeps an index from giving documents back as they were sent; it cannot be changed later.

    Args:
        made: ``settings`` and ``mappings`` of the index, as the cluster tells them.
    """
    settings: Mapping[str, Any] = made.get("settings", {}).get("index", {})
    mappings: Mapping[str, Any] = made.get("mappings", {})
    source: Mapping[str, Any] = mappings.get("_source", {})
    modes = {
        "index.mapping.source.mode": settings.get("mapping", {}).get("source", {}).get("mode"),
        "_source.mode": source.get("mode"),
    }
    found = []
    if settings.get("mode") in _MODES:
        found.append(f"takes no document without a @timestamp (index.mode {settings['mode']})")
    for name, mode in modes.items():
        if mode in _REBUILT:
            found.append(f"has documents rebuilt when they are read ({name} {mode})")
    if source.get("includes") or source.get("excludes") or source.get("enabled") in (False, "false"):
        found.append("keeps only a part of each document (_source)")
    if mappings.get("_routing", {}).get("required") in (True, "true"):
        found.append("asks for a routing value (_routing)")
    return found


def cuts_error(index: str, found: Sequence[str], told: Sequence[tuple[str, str]] = ()) -> SinkError:
    """Return the error of an index that a template has made another than what was asked for.

    Args:
        index: Its name.
        found: What :func:`cuts` says of it.
        told: Message and hint of each template that does so, where that is known.
    """
    for message, hint in told:
        return SinkError(message, code="ES_TEMPLATE_CHANGES", hint=f"Take that from the template. Or: {hint}")
    return SinkError(
        f"The index {index} {' and '.join(found)}, as a template of the cluster had it; rows are not equal.",
        code="ES_TEMPLATE_CHANGES",
        hint="Take that from the template, and delete the index: it is made anew, and filled.",
    )


def hides(settings: Mapping[str, Any], wanted: str | None) -> dict[str, str]:
    """Return setting → what it does, of those that keep readers from rows.

    Args:
        settings: Of the index, as the cluster tells them below ``index``.
        wanted: The refresh interval that the sink is to have.
    """
    found: dict[str, str] = {}
    if settings.get("verified_before_close") == "true":
        found[_CLOSED] = "is closed"
    if str(settings.get("blocks", {}).get("read", "false")) == "true":
        found["index.blocks.read"] = "may not be read"
    interval = settings.get("refresh_interval")
    if interval is not None and _NEVER.fullmatch(interval) and interval != wanted:
        found["index.refresh_interval"] = "is never refreshed: readers do not see what is written"
    return found


def hides_error(index: str, found: Mapping[str, str], wanted: str | None) -> SinkUnavailable:
    """Return the error of an index that keeps readers from rows, with the request that mends it."""
    body = json.dumps({name: wanted if "refresh" in name else None for name in found})
    request = f"POST {path(index, '_open')}" if _CLOSED in found else f"PUT {path(index, '_settings')} {body}"
    message = f"The index {index} {' and '.join(found.values())} ({', '.join(found)})."
    return SinkUnavailable(message, code="ES_HIDDEN", hint=f"Take that back: {request}")
