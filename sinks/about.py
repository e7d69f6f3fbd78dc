"""Trouble with one table's target, told as such: the other tables of the sink go on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from headrace.model.errors import SinkError
from headrace.model.pasted import word
from headrace.model.schema import TableId

__all__ = ["ROTATE", "about", "rebuild_hint"]

ROTATE = "headrace sink rotate SINK "
"""What a hint begins with that has a sink be given other settings."""


def rebuild_hint(table: TableId) -> str:
    """Return the command that makes a table's target anew beside the one that is served, and fills it."""
    return f"headrace resnapshot SOURCE {word(str(table))}"


@contextmanager
def about(table: TableId, rebuild: Collection[str], others: Collection[str] = ()) -> Iterator[None]:
    """Name the table in errors of these codes.

    Args:
        table: Whose target is worked on.
        rebuild: Codes that say the target is gone or of another shape; their hint is how to make it anew.
        others: Further codes that are about one target only.
    """
    try:
        yield
    except SinkError as error:
        if error.table is None and (error.code in rebuild or error.code in others):
            error.table = table
            if error.code in rebuild:
                error.hint = rebuild_hint(table)
        raise
