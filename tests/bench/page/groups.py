"""The sections of the page: what each group of results is called, and what a reader has to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["TITLES", "note"]

TITLES: Mapping[str, str] = {
    "apply": "Applying, against the raw clients of the stores",
    "drain": "Draining a backlog",
    "peer": "Beside others",
    "latency": "From commit to visible",
    "resnapshot": "Reading a table anew",
    "check": "Before a source is added",
    "idle": "At rest",
    "large": "Large transactions",
    "scale": "With the size of what is mirrored",
    "raw": "What the parts can do alone",
    "demo": "The demo",
}
"""Group → heading, in the order of the page; others follow."""

_NOTES = Path(__file__).with_name("notes")


def note(group: str) -> str:
    """Return what stands under a group's heading; nothing where nothing has to be said."""
    path = _NOTES / f"{group}.md"
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""
