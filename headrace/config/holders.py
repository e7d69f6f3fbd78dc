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
    """Return the marks, newest first; None when there is no file.

    Of a damaged one there are none left: every claim is another's then, until ``--take-over`` lets the sink
    in.
    """
    try:
        return _MARKS.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return []


def remember(path: Path, marks: Sequence[str]) -> None:
    """Replace the marks, durably."""
    write_private(path, json.dumps(list(marks)))
