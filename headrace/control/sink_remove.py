"""The end of a sink: its query, what it knows of itself and its registration go; its targets when asked."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from headrace.control import deadletters, undone
from headrace.control.alone import only_one
from headrace.control.claims import owner_file, strangers
from headrace.control.context import Context
from headrace.control.opened import opened_sink, tables_of
from headrace.control.pipelines import discard_run, withdraw, working_on
from headrace.control.registry import Registry, SinkEntry, SourceTableEntry
from headrace.control.runs.shadowing import discard_of_sink
from headrace.control.sink_settings import forget
from headrace.control.verdicts import forget_sink, forget_target
from headrace.model.claim import Claim
from headrace.model.errors import SinkError
from headrace.model.schema import TableId
from sinks.base import Sink

__all__ = ["LeftTarget", "let_go", "remove", "remove_made", "unregister"]

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LeftTarget:
    """A target that a purge has left, for the sink of another installation serves it now."""

    table: str
    sink: str
    home: str


def remove(
    context: Context, name: str, *, purge: bool = False, say: Say = lambda _: None
) -> list[LeftTarget]:
    """Stop applying and forget the sink; with ``purge`` its targets and their data go too.

    A target that another writer has taken over stays: it is that one's now. Those are returned.

    Raises:
        SinkError: When ``purge`` fails; the sink then stays registered, stopped, to be removed again.
    """
    undone.named_sink(Registry(context.registry), name)
    with only_one(context, "sink", name, f"`headrace sink remove {name}`", say):
        return let_go(context, name, purge=purge, say=say)


def let_go(context: Context, name: str, *, purge: bool = False, say: Say) -> list[LeftTarget]:
    """Do what :func:`remove` does; for a command that keeps others away itself."""
    registry, left = Registry(context.registry), list[LeftTarget]()
    with working_on(context, name, f"`headrace sink remove {name}`", say):
        entry, begun = undone.named_sink(registry, name), undone.begun_targets(registry, name)
        is_registered = name not in undone.begun_sinks(registry)
        say("stopping its query")
        withdraw(context, name)
        if is_registered:
            discard_of_sink(context, name)
        if purge:
            mine = tables_of(registry, entry) if is_registered else []
            if mine or begun:  # else nothing was made, and a password that opens the store may lack
                say("removing its targets")
                left = _drop(context, registry, entry, mine, begun, say)
            if is_registered:  # else those are of an earlier one
                shutil.rmtree(context.dead_letters / name, ignore_errors=True)
                deadletters.forget(context, name)
            if is_registered or not (context.dead_letters / name).exists():
                # Else they stay known: a store may be restored from a backup of this time.
                owner_file(context, name).unlink(missing_ok=True)
        discard_run(context, name)
        forget(context, name)
        unregister(registry, name)
        undone.forget(registry, undone.noted_topics(registry, name), sink=name)
        registry.note(f"sink {name}", "removed", purged=purge)
    return left


def _drop(
    context: Context,
    registry: Registry,
    entry: SinkEntry,
    mine: Sequence[SourceTableEntry],
    begun: Sequence[SourceTableEntry],
    say: Say,
) -> list[LeftTarget]:
    """Remove the targets of a sink, and those that were begun; return what is another's now, and stays."""
    left: list[LeftTarget] = []
    with _or_leaving(entry.name), opened_sink(entry) as sink:
        tables = [*mine, *(table for table in begun if sink.exists(table.schema))]
        taken = strangers(context, entry.name, sink, [table.schema for table in tables])
        taken |= _of_other_sinks(entry.name, sink, begun)
        for table in tables:
            if (claim := taken.get(table.schema.table)) is not None:
                stays = LeftTarget(str(table.schema.table), claim.sink, claim.home)
                say(f"{stays.table}: left, for sink {stays.sink} of {stays.home} serves it now")
                left.append(stays)
            else:
                sink.drop(table.schema)
                forget_target(registry, entry.source, table.topic, entry.name)
        sink.forget([table.topic for table in tables if table.schema.table not in taken])
    return left


@contextmanager
def _or_leaving(name: str) -> Iterator[None]:
    """Have what the store refuses say how the sink goes without it."""
    try:
        yield
    except SinkError as error:
        without = f"headrace sink remove {name}"
        error.hint = f"{error.hint} Or leave what the store holds; or {without}".strip()
        raise


def remove_made(context: Context, entry: SinkEntry, tables: Sequence[SourceTableEntry]) -> None:
    """Remove targets that a command has made which is refused now, with the progress beside them.

    Made is what is noted as that. What another writer has claimed meanwhile is that one's. What a silent
    store keeps stays noted.
    """
    topics = {table.topic for table in tables}
    begun = undone.begun_targets(Registry(context.registry), entry.name)
    made = [table for table in begun if table.topic in topics]
    with suppress(SinkError):
        if made:
            _drop_made(context, entry, made)
        undone.forget(Registry(context.registry), [table.topic for table in tables], sink=entry.name)


def _drop_made(context: Context, entry: SinkEntry, made: Sequence[SourceTableEntry]) -> None:
    with opened_sink(entry) as sink:
        taken = strangers(context, entry.name, sink, [table.schema for table in made])
        taken |= _of_other_sinks(entry.name, sink, made)
        ours = [table for table in made if table.schema.table not in taken]
        for table in ours:
            if sink.exists(table.schema):
                sink.drop(table.schema)
        sink.forget([table.topic for table in ours])


def _of_other_sinks(name: str, sink: Sink, begun: Sequence[SourceTableEntry]) -> dict[TableId, Claim]:
    """Return the claims upon begun targets that are another sink's by now, also of this installation."""
    claims = sink.claims([table.schema for table in begun])
    return {table: claim for table, claim in claims.items() if claim.sink != name}


def unregister(registry: Registry, name: str) -> None:
    """Forget a registration; idempotent."""
    with registry.begin() as session:
        found = session.get(SinkEntry, name)
        if found is not None:
            forget_sink(session, found.source, name)
            session.delete(found)
