"""Whether an index keeps whole rows, and shows them to its readers: templates and settings forbid it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.model.errors import SinkError, SinkUnavailable
from sinks.elasticsearch.client import path

__all__ = ["cuts", "cuts_error", "hides", "hides_error"]

_MODES = ("logsdb", "time_series")
_REBUILT = ("synthetic", "disabled")
_CLOSED = "index.verified_before_close"
_LATE_MS = 60_000
"""So much later than it is written searches may show a row: up to a minute is what operators choose for
indexes that are written much. A target that hides rows is not written to, which would be worse."""
_INTERVAL = re.compile(r"([+-]?\d+)\s*([a-z]*)")
_UNIT_NS = {
    "nanos": 1,
    "micros": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3_600 * 10**9,
    "d": 86_400 * 10**9,
}


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

    A refresh interval does so where nothing is ever refreshed, and where it is longer than a minute. One that
    is no longer than the sink's own is left alone.

    Args:
        settings: Of the index, as the cluster tells them below ``index``.
        wanted: The refresh interval that the sink is to have; None is the cluster's own.
    """
    found: dict[str, str] = {}
    if settings.get("verified_before_close") == "true":
        found[_CLOSED] = "is closed"
    if str(settings.get("blocks", {}).get("read", "false")) == "true":
        found["index.blocks.read"] = "may not be read"
    interval = settings.get("refresh_interval")
    if interval is not None and _late_ms(interval) > max(_LATE_MS, _late_ms(wanted or "1s")):
        never = _late_ms(interval) == math.inf
        often = "never refreshed" if never else f"refreshed every {interval} only"
        found["index.refresh_interval"] = f"is {often}: readers do not see what is written"
    return found


def _late_ms(interval: str) -> float:
    """Return how many milliseconds apart refreshes are; infinite where there is none.

    Elasticsearch counts whole milliseconds: less than one is none, as 0 and -1 are.
    """
    told = _INTERVAL.fullmatch(interval.strip().lower())
    if told is None:
        return 0
    whole = int(told[1]) * _UNIT_NS.get(told[2], 0) // 10**6
    return whole if whole > 0 else math.inf


def hides_error(index: str, found: Mapping[str, str], wanted: str | None) -> SinkUnavailable:
    """Return the error of an index that keeps readers from rows, with the request that mends it."""
    body = json.dumps({name: wanted if "refresh" in name else None for name in found})
    request = f"POST {path(index, '_open')}" if _CLOSED in found else f"PUT {path(index, '_settings')} {body}"
    message = f"The index {index} {' and '.join(found.values())} ({', '.join(found)})."
    return SinkUnavailable(message, code="ES_HIDDEN", hint=f"Take that back: {request}")
