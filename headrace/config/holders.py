"""The marks by which an installation knows its own claims upon a sink's targets; one small file per sink."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from headrace.config.pipeline import write_private

__all__ = ["holders", "remember"]

_MARKS = TypeAdapter(list[str])


def holders(path: Path) -> list[str] | None:
    """Return the marks, newest first; None when the file is gone or damaged.

    Without it the sink is fenced from its own targets, and ``--take-over`` lets it in.
    """
    try:
        return _MARKS.validate_json(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def remember(path: Path, marks: Sequence[str]) -> None:
    """Replace the marks, durably."""
    write_private(path, json.dumps(list(marks)))
