"""The end of a source: connector, slot, publication, topics and registration go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy import select

from connectors.base import Capture, Left, Source
from headrace.control import undone
from headrace.control.adding import note
from headrace.control.alone import alone, only_one
from headrace.control.begun import Before, Begun, end, named, noted
from headrace.control.capture import capture_of, secret_of, source_of
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.debts import forget
from headrace.control.kafka import Kafka
from headrace.control.registry import Adding, Registry, SinkEntry, SourceEntry
from headrace.control.remedies import then
from headrace.control.topics import topics_of
from headrace.model.errors import SourceError, StackError, UsageError

__all__ = ["Say", "close", "let_go", "refuse_used", "remove", "stop_and_forget"]

Say = Callable[[str], None]
"""Told one sentence per step; for people."""


def remove(
    context: Context,
    name: str,
    *,
    leave_database: bool = False,
    leave_connect: bool = False,
    say: Say = lambda _: None,
) -> Left:
    """Remove connector, slot, publication, topics and registration; idempotent after a failure.

    So it does with what an ``add`` has made that was killed before it had registered. A connector that stays
    cannot read on when its worker is back: its publication is gone, and without one it makes no slot.

    Args:
        context: The installation.
        name: The source.
        leave_database: Leave what is in the database, which may be gone.
        leave_connect: Leave the connector where Connect does not answer, and topics where Kafka does not.
        say: Told what is being done.

    Returns:
        What was left: a slot that stays keeps its log for ever. What the database does not let us remove
        stays as well, without the slot.

    Raises:
        UsageError: When sinks still read from it (``SOURCE_IN_USE``).
        SourceError: When the database does not answer (``SOURCE_UNREACHABLE``), or the address leads to a
            server that has no say over the slot (``SOURCE_STANDBY``, ``SOURCE_ANOTHER_CLUSTER``).
        StackError: When Connect or Kafka does not, and is not to be left.
    """
    named(Registry(context.registry), name)
    with only_one(context, "source", name, f"`headrace source remove {name}`", say):
        return let_go(context, name, say, leave_database=leave_database, leave_connect=leave_connect)


def let_go(
    context: Context, name: str, say: Say, *, leave_database: bool = False, leave_connect: bool = False
) -> Left:
    """Do what :func:`remove` does; for a command that keeps others of the name away itself."""
    # Who recovers it, or takes tables in, would make anew what goes.
    with alone(context, name, f"`headrace source remove {name}`", say):
        return _let_go(context, name, say, leave_database=leave_database, leave_connect=leave_connect)


def _let_go(context: Context, name: str, say: Say, *, leave_database: bool, leave_connect: bool) -> Left:
    registry = Registry(context.registry)
    begun = noted(registry).get(name)
    entry = begun.entry if begun else registry.source(name)
    before = entry.adding
    if not close(registry, name):
        refuse_used(registry, name)
    left = Left()
    try:
        if begun is None or begun.made:
            left = _taken_back(context, entry, begun, say, leave_database, leave_connect)
    except BaseException:
        note(registry, entry, Adding(before) if before else None)
        raise
    forget(context, name)
    undone.forget(registry, undone.begun_topics(registry, name))
    end(registry, secret_of(context, name), name, begun.before if begun else Before())
    registry.note(f"source {name}", "removed", left=[*left.statements, *left.apart])
    return left


def close(registry: Registry, name: str) -> bool:
    """Have no sink be added to a source that goes; return whether none reads from it.

    Nothing is noted of one that a sink reads from.
    """
    with registry.begin() as session:
        found = session.get(SourceEntry, name)
        if found is None:
            return True
        if session.scalars(select(SinkEntry.name).where(SinkEntry.source == name)).first() is not None:
            return False
        found.adding = Adding.GOING.value
        return True


def _taken_back(
    context: Context,
    entry: SourceEntry,
    begun: Begun | None,
    say: Say,
    leave_database: bool,
    leave_connect: bool,
) -> Left:
    """Remove what there is of a source anywhere but in the registry; return what was left."""
    apart: list[str] = []
    source, capture = source_of(context, entry), capture_of(context, entry)
    connector = capture.connector
    again = f"headrace source remove {entry.name}"
    without_connect = f"{again} --leave-connect" if leave_connect else again
    if leave_database:
        again += " --leave-database"
    # One that never had a connector has no slot and no record: what has, is of whoever took the name since.
    never_ran = begun is not None and not begun.connector
    others = f"somebody else has taken the name {entry.name} since, and keeps"
    with _left(apart, [connector], again, leave=leave_connect), Connect(context.connect_url) as connect:
        if never_ran and connect.config(connector).get("database.password", capture.password) != (
            capture.password
        ):
            say(f"{others} all that is there")
            return Left()
        say("stopping the connector")
        stop_and_forget(connect, connector)
        connect.delete(connector)
    left = Left(source.leftovers(capture), "it was asked to be left") if leave_database else Left()
    if not leave_database and never_ran and _has_slot(source, capture):
        say(f"{others} what is in the database")
    elif not leave_database:
        say("removing slot, publication and tables from the database")
        left = _teardown(source, capture, entry.system, without_connect)
    say("removing topics")
    there = begun.before.topics if begun is not None else ()
    topics = [topic.name for topic in topics_of(capture) if topic.name not in there]
    topics += undone.begun_topics(Registry(context.registry), entry.name)
    with _left(apart, topics, again, leave=leave_connect):
        kafka = Kafka(context.kafka_bootstrap)
        if never_ran and any(high for _, high in kafka.ends(topics).values()):
            say(f"{others} the topics")
        else:
            kafka.delete(topics)
    if apart:
        say(f"what does not answer keeps: {', '.join(apart)}")
    return replace(left, apart=tuple(apart))


def _has_slot(source: Source, capture: Capture) -> bool:
    try:
        source.refuse_taken(capture)
    except SourceError as error:
        return error.code == "SOURCE_SLOT_TAKEN"
    return False


def refuse_used(registry: Registry, name: str) -> None:
    """Refuse to remove a source from which sinks read (``SOURCE_IN_USE``)."""
    sinks = [sink.name for sink in registry.sinks(name)]
    if sinks:
        raise UsageError(
            f"Sinks still read from {name}: {', '.join(sinks)}.",
            code="SOURCE_IN_USE",
            hint=f"headrace sink remove {sinks[0]}",
        )


@contextmanager
def _left(apart: list[str], what: Sequence[str], again: str, *, leave: bool) -> Iterator[None]:
    """Note what stays on a server that does not answer; unless it is to be left, say how to leave it."""
    try:
        yield
    except StackError as error:
        if error.code not in ("CONNECT_UNREACHABLE", "KAFKA_UNREACHABLE", "KAFKA_REFUSED"):
            raise
        if not leave:
            error.hint = f"If it is gone for good: {again} --leave-connect"
            raise
        apart.extend(what)


def _teardown(source: Source, capture: Capture, system: str | None, again: str) -> Left:
    try:
        with then("SOURCE_SLOT_BUSY", again):
            return source.teardown(capture, system)
    except SourceError as error:
        # Without a hint the session broke off: a refusal that is ours to leave is in what is returned.
        if error.code in ("SOURCE_UNREACHABLE", "SOURCE_POOLED") or not error.hint:
            error.hint = f"If the database is gone for good: {again} --leave-database"
        elif error.code in ("SOURCE_STANDBY", "SOURCE_ANOTHER_CLUSTER"):
            error.hint += f"\nTo leave it to them: {again} --leave-database"
        raise


def stop_and_forget(connect: Connect, connector: str) -> None:
    """End the task and remove its positions, so that a namesake later starts from nothing."""
    connect.stop(connector)
    connect.forget_offsets(connector)
