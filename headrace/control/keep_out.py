"""Columns that are left out stay so in the connector, too, when they are given other names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from connectors.base import Capture, Source
from headrace.control.alone import alone_if_nobody_works
from headrace.control.capture import capture_now, capture_of, source_of
from headrace.control.columns import there
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.registry import Registry, SourceEntry
from headrace.model.schema import TableId, declared_keys

__all__ = ["keep_out", "leaving_out", "scope", "there_of"]

_LEFT_OUT = "column.exclude.list"
_NOTED = "columns left out under other names"


def there_of(context: Context, entry: SourceEntry) -> Capture:
    """Return what the entry captures, of those tables that the database has."""
    capture = capture_of(context, entry)
    schemas = [schema.table for schema in capture.tables]
    present = {schema.table for schema in there(context, entry, schemas, declared_keys(capture.tables))}
    return replace(capture, tables=tuple(t for t in capture.tables if t.table in present))


def leaving_out(
    source: Source,
    capture: Capture,
    has: Mapping[str, str],
    only: Mapping[TableId, Sequence[str]] | None = None,
) -> dict[str, str]:
    """Return the connector's properties with the columns to leave out now.

    Args:
        source: The database.
        capture: What is captured of it; all of it is there.
        has: The connector's properties. One that is gone has none, and stays so.
        only: Columns besides which none is left out newly; any may be when None. A captured column that
            cannot be captured just now, for want of its replica identity say, stays so.

    Returns:
        Nothing when they are what it has.
    """
    now = capture_now(source, capture)
    wanted = scope(source, now, has, only) if only is not None else source.properties(now)
    if not has or has.get(_LEFT_OUT) == wanted.get(_LEFT_OUT):
        return {}
    kept = {name: value for name, value in has.items() if name != _LEFT_OUT}
    return {**kept, **({_LEFT_OUT: wanted[_LEFT_OUT]} if _LEFT_OUT in wanted else {})}


def scope(
    source: Source, now: Capture, has: Mapping[str, str], only: Mapping[TableId, Sequence[str]]
) -> dict[str, str]:
    """Return the connector's properties for a capture, so that no column is left out newly but these.

    Args:
        source: The database.
        now: What is to be captured, as :func:`capture_now` tells it.
        has: The connector's properties.
        only: Columns that may be left out newly; what somebody chose to leave out is so without a word.
    """
    named = [
        replace(one, extra={"excluded": (*only.get(one.table, ()), *one.extra.get("chosen", ()))})
        for one in now.tables
    ]
    may = {*_left_out(has), *_left_out(source.properties(replace(now, tables=tuple(named))))}
    wanted = source.properties(now)
    out = [one for one in _left_out(wanted) if one in may]
    kept = {name: value for name, value in wanted.items() if name != _LEFT_OUT}
    return {**kept, **({_LEFT_OUT: ",".join(out)} if out else {})}


def _left_out(properties: Mapping[str, str]) -> list[str]:
    return [one for one in properties.get(_LEFT_OUT, "").split(",") if one]


def keep_out(
    context: Context, registry: Registry, name: str, columns: Mapping[TableId, tuple[str, ...]]
) -> bool:
    """Have the connector leave ``columns`` out, which were left out under other names, and note that.

    Returns:
        Whether it does now; not while a command works on what the source captures, or it is gone.

    Raises:
        StackError: When Connect does not answer.
    """
    with alone_if_nobody_works(context, name, "the watcher") as mine:
        if not mine:
            return False
        entry = registry.source(name)
        with Connect(context.connect_url, patience=2.0) as connect:
            if not (has := connect.config(capture_of(context, entry).connector)):
                return False
            source, capture = source_of(context, entry), there_of(context, entry)
            if told := leaving_out(source, capture, has, columns):
                connect.reconfigure(capture.connector, told)
        named = [f"{table}.{column}" for table, again in columns.items() for column in again]
        if told or not _is_noted(registry, name, named):
            registry.note(f"source {name}", _NOTED, columns=named)
    return True


def _is_noted(registry: Registry, name: str, columns: list[str]) -> bool:
    """Return whether the last word of the journal on this is the same."""
    said = [one for one in registry.journal(f"source {name}", limit=1_000) if one.event == _NOTED]
    return bool(said) and said[-1].detail.get("columns") == columns
