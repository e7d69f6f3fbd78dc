"""The commands that a remedy tells, quoted so that they can be pasted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from connectors.base import Wait
from connectors.registry import why_unreadable
from headrace.control.registry import SinkEntry, SourceEntry
from headrace.model.errors import HeadraceError
from headrace.model.pasted import command
from headrace.model.schema import TableId, TableSchema

__all__ = ["another_key", "another_name", "read_anew", "recover", "take_in", "then", "waiting_for"]

_NAMED = 3


def recover(source: str) -> str:
    """Return the command that reads a source anew as a whole."""
    return command("headrace", "recover", source)


def read_anew(source: SourceEntry, tables: Sequence[TableSchema] = (), *, sweep_many: bool = False) -> str:
    """Return the command that reads tables anew; all of the source's when none is named.

    A table that the connector cannot read beside the stream is read by a recovery.
    """
    if any(why_unreadable(source.kind, schema) for schema in tables or [t.schema for t in source.tables]):
        return recover(source.name)
    named = [str(schema.table) for schema in tables]
    options = ["--sweep-many"] if sweep_many else []
    return command("headrace", "resnapshot", source.name, *named, *options)


def take_in(source: str, tables: Iterable[TableId]) -> str:
    """Return the command that has a source capture further tables, and that goes on with that."""
    return command("headrace", "source", "tables", "add", source, *map(str, tables))


def another_key(
    source: SourceEntry, sinks: Sequence[SinkEntry], table: TableId, *, between: Sequence[str] = ()
) -> str:
    """Return what to do when a table has another key: other rows are meant than those mirrored.

    Args:
        source: The source.
        sinks: All of its sinks.
        table: Which table. It is taken out with its targets, and taken in anew.
        between: Commands to run before it is taken in.
    """
    if len(source.tables) == 1:  # a source without a table cannot be
        removing = "".join(f"headrace sink remove {sink.name} --purge && " for sink in sinks)
        return f"{removing}headrace source remove {source.name}  # then add them again"
    others = {one.topic for one in source.tables if one.schema.table != table}
    mirrors = [sink for sink in sinks if sink.tables.keys() - others]
    alone = [sink.name for sink in mirrors if not sink.tables.keys() & others]  # nor can such a sink
    named = [sink.name for sink in mirrors if sink.name not in alone]
    unnamed = [sink.name for sink in sinks if sink.follows_all(others)]
    options = [word for name in named for word in ("--sink", name)] if named != unnamed else []
    tables = ["headrace", "source", "tables"]
    commands = [
        *(command("headrace", "sink", "remove", name, "--purge") for name in alone),
        command(*tables, "remove", source.name, str(table), "--purge"),
        *between,
        command(*tables, "add", source.name, str(table), *options),
    ]
    return " && ".join(commands) + (f"  # then add {', '.join(alone)} again" if alone else "")


def another_name(source: str, sinks: Iterable[str]) -> str:
    """Return what to do when something else on the database's server has the source's name."""
    removing = "".join(f"headrace sink remove {sink} && " for sink in sinks)
    return f"{removing}headrace source remove {source}  # then add it again under another name"


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
