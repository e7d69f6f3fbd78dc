"""How tables differ now from what was registered of them, and from what each sink's query was told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from connectors.base import Keys
from headrace.config.pipeline import load_pipeline
from headrace.control import verdicts
from headrace.control.capture import capture_of, source_of
from headrace.control.context import Context
from headrace.control.registry import Registry, SinkEntry, SourceEntry
from headrace.control.remedies import another_key
from headrace.model.errors import SourceError
from headrace.model.schema import Column, TableId, TableSchema, declared_keys

__all__ = ["Changes", "TableChange", "Target", "changes", "compare", "there"]

Target = tuple[str, TableId]
"""A sink and a table of it."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """How a table differs from what was registered.

    Args:
        table: Which table.
        added: New columns.
        dropped: Columns that are gone.
        retyped: Columns of another type, as ``name: old → new``.
        schema: The table as it is now.
        recreated: Whether the connector was not told of it: it was dropped and made anew, or taken out, or
            its publication did not tell of all for a while.
    """

    table: TableId
    added: tuple[str, ...]
    dropped: tuple[str, ...]
    retyped: tuple[str, ...]
    schema: TableSchema
    recreated: bool = False

    @property
    def grown(self) -> bool:
        """Whether rows of before have to be read anew."""
        return bool(self.added) or self.recreated


@dataclass(frozen=True, slots=True)
class Changes:
    """How the tables of a source differ now.

    Args:
        source: Table → its difference from what is registered, and so from what the connector knows.
        sinks: Sink → table → its difference from what the sink's query was told, of those that are to follow.
        keys: Table whose key has changed → what to say of it. Nothing of it is followed.
        standing: Targets left out of that: they have refused the table as it is, and a run makes them anew.
    """

    source: Mapping[TableId, TableChange]
    sinks: Mapping[str, Mapping[TableId, TableChange]]
    keys: Mapping[TableId, SourceError]
    standing: Collection[Target] = ()

    @property
    def tables(self) -> list[TableChange]:
        """Each table that differs anywhere, once."""
        found = dict(self.source)
        for mine in self.sinks.values():
            for table, change in mine.items():
                found.setdefault(table, change)
        return list(found.values())

    @property
    def grown(self) -> list[TableId]:
        """Tables of which rows of before have to be read anew for the source or for a sink."""
        every = (self.source, *self.sinks.values())
        return list(dict.fromkeys(table for mine in every for table, change in mine.items() if change.grown))

    def refuse_keys(self) -> None:
        """Refuse to go on when the key of a table has changed, naming each (``SOURCE_KEY_CHANGED``)."""
        if not self.keys:
            return
        told = self.keys.values()
        raise SourceError(
            " ".join(error.message for error in told),
            code="SOURCE_KEY_CHANGED",
            hint="\n".join(error.hint for error in told),
        )


def changes(context: Context, name: str) -> list[TableChange]:
    """Return how the source's tables differ from what is mirrored; changes nothing.

    A table that is gone, or that has no key any more, is passed over: ``lag`` tells of it.

    Raises:
        SourceError: When a key has changed (``SOURCE_KEY_CHANGED``).
    """
    found = compare(context, name)
    found.refuse_keys()
    return found.tables


def compare(
    context: Context, name: str, sinks: Collection[str] | None = None, *, again: bool = True
) -> Changes:
    """Return how the source's tables differ, see :func:`changes`.

    Args:
        context: The installation.
        name: The source.
        sinks: Those that are to follow; all when None.
        again: Whether a target is to be tried again that stands as one that a run has to make anew, although
            the table has not changed since.
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    all_sinks = registry.sinks(name)
    chosen = [sink for sink in all_sinks if sinks is None or sink.name in sinks]
    # A sink that was told to ignore a change stands where it stood before.
    told = {
        sink.name: [table.schema_ for table in load_pipeline(context.pipelines / f"{sink.name}.json").tables]
        for sink in chosen
    }
    registered = [table.schema for table in entry.tables]
    known = [*registered, *(schema for schemas in told.values() for schema in schemas)]
    found = there(context, entry, [schema.table for schema in registered], declared_keys(known))
    keys = _other_keys(entry, all_sinks, known, found)
    found = [schema for schema in found if schema.table not in keys]
    source = _differing(registered, found)
    mine = {sink: _differing(schemas, found) for sink, schemas in told.items()}
    today = {schema.table: schema for schema in found}
    untold = set(source_of(context, entry).hold(capture_of(context, entry)).uncaptured)
    if sinks is None:
        untold |= _untold(registry, entry)
    for table in sorted(untold & today.keys(), key=str):
        same = TableChange(table, (), (), (), today[table])
        captors = [mine[sink] for sink, schemas in told.items() if table in {s.table for s in schemas}]
        for differing in (source, *captors):
            differing[table] = replace(differing.get(table, same), recreated=True)
    refused = set[Target]() if again else _refused(registry, entry, chosen)
    standing = {(sink, table) for sink, table in refused if table in mine[sink] and table not in source}
    for sink, table in standing:
        del mine[sink][table]
    mine = {sink: differing for sink, differing in mine.items() if differing}
    return Changes(source, mine, keys, standing)


_PASSED_OVER = ("SOURCE_TABLE_MISSING", "SOURCE_NO_PRIMARY_KEY")


def there(
    context: Context, entry: SourceEntry, tables: Sequence[TableId], declared: Keys
) -> list[TableSchema]:
    """Return the schemas of those of the tables that the database has, and that have a key."""
    source = source_of(context, entry)
    try:
        return source.catalogue(tables, declared)
    except SourceError as error:
        if error.code not in _PASSED_OVER:
            raise
    found: list[TableSchema] = []
    for table in tables:
        try:
            found += source.catalogue([table], declared)
        except SourceError as error:
            if error.code not in _PASSED_OVER:
                raise
    return found


def _untold(registry: Registry, entry: SourceEntry) -> set[TableId]:
    """Return the tables of which changes were not told right, and that have not been read since."""
    sinks = {sink.name: sink.tables for sink in registry.sinks(entry.name)}
    topics = {
        found.topic
        for found in verdicts.standing(registry, entry.name)
        if found.code in verdicts.REFRESHED
        # What is wrong at sinks to come alone is nothing to be mended for those that are here.
        and (
            not found.healed or any(found.topic in sinks[name] for name in sinks.keys() - found.healed.keys())
        )
    }
    return {table.schema.table for table in entry.tables if table.topic in topics}


def _refused(registry: Registry, entry: SourceEntry, sinks: Iterable[SinkEntry]) -> set[Target]:
    """Return the targets that stand as ones that a run has to make anew."""
    names = {sink.name for sink in sinks}
    tables = {table.topic: table.schema.table for table in entry.tables}
    found = verdicts.made_anew(registry, entry.name)
    return {(sink, tables[topic]) for sink, topic in found if sink in names and topic in tables}


def _other_keys(
    entry: SourceEntry, sinks: Sequence[SinkEntry], known: Iterable[TableSchema], found: Iterable[TableSchema]
) -> dict[TableId, SourceError]:
    """Return the tables whose key is another one than any that is known of them, with what to do."""
    before = {(schema.table, schema.key) for schema in known}
    now = {schema.table: schema.key for schema in found}
    return {
        table: SourceError(
            f"The key of {table} has changed from ({', '.join(key)}) to ({', '.join(now[table])}).",
            code="SOURCE_KEY_CHANGED",
            hint=another_key(entry, sinks, table),
        )
        for table, key in sorted(before, key=str)
        if now.get(table, key) != key
    }


def _differing(known: Iterable[TableSchema], found: Iterable[TableSchema]) -> dict[TableId, TableChange]:
    before = {schema.table: schema for schema in known}
    differing = (_change(before[now.table], now) for now in found if now.table in before)
    return {change.table: change for change in differing if change is not None}


def _change(known: TableSchema, now: TableSchema) -> TableChange | None:
    before, after = known.by_name, now.by_name
    both = [name for name in after if name in before and _kind(before[name]) != _kind(after[name])]
    change = TableChange(
        now.table,
        # What was recorded before tells nothing of a column that was, or will be, looked up.
        added=tuple(n for n in after if n not in before or before[n].computed != after[n].computed),
        dropped=tuple(name for name in before if name not in after),
        retyped=tuple(f"{name}: {before[name].native} → {after[name].native}" for name in both),
        schema=replace(now, former=tuple(sorted({*known.former, *before} - after.keys()))),
    )
    return change if change.added or change.dropped or change.retyped else None


def _kind(column: Column) -> tuple[object, ...]:
    return column.type, column.dimensions, column.precision, column.scale, column.native
