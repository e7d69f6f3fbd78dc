"""The commands that a remedy tells, quoted so that they can be pasted."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from connectors.base import Wait
from connectors.registry import why_unreadable
from headrace.control.registry import SourceEntry
from headrace.model.errors import HeadraceError
from headrace.model.schema import TableSchema

__all__ = ["read_anew", "recover", "then", "waiting_for"]

_NAMED = 3


def recover(source: str) -> str:
    """Return the command that reads a source anew as a whole."""
    return shlex.join(["headrace", "recover", source])


def read_anew(source: SourceEntry, tables: Sequence[TableSchema] = (), *, sweep_many: bool = False) -> str:
    """Return the command that reads tables anew; all of the source's when none is named.

    A table that the connector cannot read beside the stream is read by a recovery.
    """
    if any(why_unreadable(source.kind, schema) for schema in tables or [t.schema for t in source.tables]):
        return recover(source.name)
    named = [str(schema.table) for schema in tables]
    options = ["--sweep-many"] if sweep_many else []
    return shlex.join(["headrace", "resnapshot", source.name, *named, *options])


@contextmanager
def then(code: str, command: str) -> Iterator[None]:
    """Have errors of that code, whose hint mends the cause, name the command to run after it."""
    try:
        yield
    except HeadraceError as error:
        if error.code == code:
            error.hint += f" -- then: {command}"
        raise


def waiting_for(waits: tuple[Wait, ...]) -> tuple[str, str]:
    """Return for whom a slot waits, in words, and the statements that end that."""
    named = waits[:_NAMED]
    others = f" and {len(waits) - _NAMED} more" if len(waits) > _NAMED else ""
    return "; ".join(wait.who for wait in named) + others, "\n".join(wait.ends for wait in named)
