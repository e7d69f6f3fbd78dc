"""Sinks that do not follow the columns of their tables yet: their names, and the digits of numerics."""

from __future__ import annotations

from collections.abc import Collection

from connectors.watch import Sight
from headrace.config.pipeline import SchemaPolicy
from headrace.control.context import Context
from headrace.control.pipelines import tables_told
from headrace.control.registry import Registry, SourceEntry
from headrace.control.verdicts import State, Verdict, made_anew, record
from headrace.model.schema import TableSchema

__all__ = ["COLUMNS_CHANGED", "unfollowed"]

COLUMNS_CHANGED = "COLUMNS_CHANGED"


def unfollowed(
    context: Context, registry: Registry, entry: SourceEntry, sight: Sight, rekeyed: Collection[str]
) -> set[tuple[str, str]]:
    """Say which sinks do not follow the columns of which tables yet; return them as ``(sink, topic)``.

    A sink that was told to ignore them is passed over, and so is a target that a run has to make anew: it
    cannot be given another shape. Nobody follows a table of another key.
    """
    following = [
        (sink, tables_told(context, sink.name))
        for sink in registry.sinks(entry.name)
        if sink.on_schema_change != SchemaPolicy.IGNORE.value
    ]
    differing: list[tuple[str, str, str]] = []
    for table in entry.tables:
        schema, topic = table.schema, table.topic
        if schema.table not in sight.columns or topic in rekeyed:
            continue
        for sink, told in following:
            said = _difference(told.get(schema.table, schema), sight) if topic in sink.tables else ""
            if said:
                differing.append((sink.name, topic, said))
    unfit = made_anew(registry, entry.name) if differing else set()
    behind: set[tuple[str, str]] = set()
    for name, topic, words in differing:
        if (name, topic) in unfit:
            continue
        said = f"the table's columns are not those mirrored ({words})"
        verdict = Verdict(State.DEGRADED, said, f"headrace source refresh {entry.name}")
        record(registry, entry, [topic], COLUMNS_CHANGED, verdict, sink=name)
        behind.add((name, topic))
    return behind


def _difference(known: TableSchema, sight: Sight) -> str:
    """Return how the columns differ from those that a sink was told of, in words; empty when they do not."""
    now, before, digits = {*sight.columns[known.table]}, {*known.by_name}, known.digits
    # A store may hold a number of so many digits only, and refuse larger ones.
    other = {
        name
        for name, held in sight.digits.get(known.table, {}).items()
        if name in now and digits.get(name, held) != held
    }
    said = {"added": now - before, "missing": before - now, "of other digits": other}
    return "; ".join(f"columns {word}: {', '.join(sorted(names))}" for word, names in said.items() if names)
