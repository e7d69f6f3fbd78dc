"""A sink's targets at its registration: made, claimed, and cleared of what another life left in them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from headrace.control.claims import claim_targets
from headrace.control.context import Context
from headrace.control.registry import Registry, SinkEntry, SourceTableEntry
from headrace.control.undone import begun_sinks
from headrace.model.errors import SinkError, UsageError
from headrace.model.life import life_of, topic_in
from headrace.model.position import Position
from headrace.model.schema import TableSchema
from sinks.base import Sink

__all__ = ["begin", "create", "missing", "refuse_ahead", "refuse_shared"]

Say = Callable[[str], None]
_SAMPLE = 1_000
_TARGETS_AT_ONCE = 8
_HEADS: Mapping[str, Callable[[str], str]] = {
    "key_template": lambda template: template.partition("{")[0],
    "path": lambda path: path.rstrip("/") + "/",
}
"""Fact about a target → what the names of everything in it begin with."""


def refuse_shared(registry: Registry, entry: SinkEntry) -> None:
    """Refuse a target that another sink's target is, holds, or lies in.

    Two writers of one target would each undo the other's deletes; who sweeps or vacuums a target would
    remove what lies in it.

    Raises:
        UsageError: When there is one (``SINK_TARGET_TAKEN``).
    """
    begun = begun_sinks(registry)
    for other in (*registry.sinks(), *begun.values()):
        if other.name == entry.name:  # of a command that was killed: this is the same one, given again
            continue
        if other.kind != entry.kind or other.settings.get("url") != entry.settings.get("url"):
            continue
        for mine, theirs in product(entry.tables.values(), other.tables.values()):
            if mine == theirs or _nested(mine, theirs):
                way = f"; or headrace sink remove {other.name} --purge" if other.name in begun else ""
                raise UsageError(
                    f"The target {_place(mine)} meets {_place(theirs)}, which sink {other.name} writes to.",
                    code="SINK_TARGET_TAKEN",
                    hint=f"Give the new sink another prefix or path{way}",
                )


def _place(facts: Mapping[str, Any]) -> str:
    known = (facts.get(name) for name in ("alias", "key_template", "path"))
    return str(next(filter(None, known), dict(facts)))


def _nested(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Return whether the keys or the files of one target lie among those of the other."""
    for name, head in _HEADS.items():
        if name in mine and name in theirs:
            one, other = head(str(mine[name])), head(str(theirs[name]))
            return one.startswith(other) or other.startswith(one)
    return False


def create(sink: Sink, captured: Sequence[SourceTableEntry]) -> None:
    """Create the targets, several at once: stores answer slowly, and mostly wait for a disk."""
    with ThreadPoolExecutor(_TARGETS_AT_ONCE) as pool:
        for _ in pool.map(lambda table: sink.prepare(table.schema), captured):
            pass


def missing(sink: Sink, schemas: Sequence[TableSchema]) -> list[TableSchema]:
    """Return the tables of whose target there is nothing yet."""
    with ThreadPoolExecutor(_TARGETS_AT_ONCE) as pool:
        there = list(pool.map(sink.exists, schemas))
    return [schema for schema, exists in zip(schemas, there, strict=True) if not exists]


def begin(
    context: Context,
    name: str,
    sink: Sink,
    captured: Sequence[SourceTableEntry],
    *,
    take_over: bool,
    say: Say,
) -> None:
    """Claim the targets and remove what an earlier life of the source left in them.

    Rows of a later life are refused, for ours would never replace them; ``take_over`` removes them. So it is
    with rows of our epoch, unless the progress beside them is of the very topic that is read now.
    """
    schemas = [table.schema for table in captured]
    found = _found(sink, captured)
    ahead = [table for table in captured if found.newest(table) >= _after(table)]
    strange = [
        table
        for table in captured
        if table in ahead
        or (table in found.unlived and found.newest(table) >= Position(table.epoch, 0).version)
    ]
    if ahead and not take_over:
        raise _ahead(ahead[0])
    claim_targets(context, name, sink, schemas, take_over=take_over)
    for table in captured:
        if table in strange:
            say(f"{table.schema.table}: removing rows of another life of the source")
            sink.drop(table.schema)
            sink.prepare(table.schema)
        elif found.oldest(table) < Position(table.epoch, 0).version:
            say(f"{table.schema.table}: removing rows of an earlier life of the source")
            sink.truncate(table.schema, Position(table.epoch, 0))
    sink.forget([table.topic for table in found.unlived])
    if strange:
        claim_targets(context, name, sink, schemas, take_over=True)


def refuse_ahead(sink: Sink, captured: Sequence[SourceTableEntry]) -> None:
    """Refuse targets with rows of a later life than ours (``SINK_TARGET_AHEAD``); changes nothing."""
    there = [table for table in captured if sink.exists(table.schema)]
    found = _found(sink, there)
    for table in there:
        if found.newest(table) >= _after(table):
            raise _ahead(table)


@dataclass(frozen=True, slots=True)
class _Found:
    """What targets hold before they are claimed.

    Args:
        versions: Topic → the lowest and the highest version of the rows.
        unlived: Tables beside whose rows there is no progress of the topic as it is now.
    """

    versions: Mapping[str, tuple[int, int]]
    unlived: Sequence[SourceTableEntry]

    def oldest(self, table: SourceTableEntry) -> int:
        return self.versions[table.topic][0]

    def newest(self, table: SourceTableEntry) -> int:
        return self.versions[table.topic][1]


def _found(sink: Sink, captured: Sequence[SourceTableEntry]) -> _Found:
    lives = {life for life, _ in sink.progress()}
    unlived = [table for table in captured if not _lived(table, lives)]
    with ThreadPoolExecutor(_TARGETS_AT_ONCE) as pool:
        versions = pool.map(lambda table: _versions(sink, table.schema, every=table in unlived), captured)
        return _Found({table.topic: both for table, both in zip(captured, versions, strict=True)}, unlived)


def _ahead(table: SourceTableEntry) -> SinkError:
    return SinkError(
        f"The target of {table.schema.table} holds rows of a later life of this source than ours.",
        code="SINK_TARGET_AHEAD",
        hint="Another installation may write there: choose another target; or add --take-over, "
        "which removes them.",
    )


def _lived(table: SourceTableEntry, lives: Collection[str]) -> bool:
    """Return whether the progress beside a table's rows is of the topic as it is now, and of nothing else."""
    return {life for life in lives if topic_in(life) == table.topic} == {life_of(table.topic, table.topic_id)}


def _after(table: SourceTableEntry) -> int:
    """Return the first version beyond the table's own."""
    return Position(table.epoch + 1, 0).version


def _versions(sink: Sink, schema: TableSchema, *, every: bool) -> tuple[int, int]:
    """Return the lowest and the highest version of a target's rows; ``every`` row is asked, or some."""
    low, high = sys.maxsize, -1
    for stored in islice(sink.scan(schema), None if every else _SAMPLE):
        low, high = min(low, stored.version), max(high, stored.version)
    return low, high
