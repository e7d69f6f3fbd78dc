"""Limits that something comes near to: told in time, and no reason to call stores unequal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.base import Hold

__all__ = ["kafka_forgets", "slot_is_near_its_end"]

_NEAR = 0.25
"""So much of a limit is left, at most, when it is told."""


def slot_is_near_its_end(hold: Hold | None) -> str:
    """Return what to say when little WAL may still be written before the slot is lost; else nothing."""
    if hold is None or hold.spare_bytes is None or hold.held_bytes is None:
        return ""
    if hold.spare_bytes > _NEAR * (hold.held_bytes + hold.spare_bytes):
        return ""
    left = max(0, hold.spare_bytes) / (1 << 20)
    return f"the slot is lost when {left:,.0f} MiB more are written to the log (max_slot_wal_keep_size)"


def kafka_forgets(settings: Mapping[str, Any], oldest_s: float | None) -> str:
    """Return what to say when Kafka is soon to forget what a sink has not applied; else nothing.

    Args:
        settings: The source's.
        oldest_s: Age of the oldest record that the sink has not settled, seconds; None when it is not known.
    """
    kept_s = settings.get("retention_ms", -1) / 1000
    if kept_s < 0 or oldest_s is None or oldest_s < (1 - _NEAR) * kept_s:
        return ""
    left = max(0.0, kept_s - oldest_s) / 60
    return f"Kafka forgets the oldest change that is not applied in {left:,.0f} min (retention)"
