"""A database that failed over: the connector is let through to the new server once nothing is proven missing.

The connector's start fails on every timeline of the log but the one in its configuration, see
:mod:`connectors.postgres.fence`. That configuration is the record of the proof: it names the new timeline
only after a look has proven, with the connector's task at an end, that all it had delivered is on the new
server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from connectors.base import Hold
from headrace.control.capture import capture_of, source_of
from headrace.control.connect import Connect, ConnectorState
from headrace.control.context import Context
from headrace.control.entries import RecoveryEntry
from headrace.control.first_load import note_loaded
from headrace.control.history import moved, not_proven, note_position
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceEntry
from headrace.model.errors import SourceError

__all__ = ["after_failover", "delivered", "keep_fence", "open_fence", "refuse_moved"]

_POSITIONS = ("lsn", "lsn_proc", "lsn_commit")


def delivered(connect: Connect, entry: SourceEntry) -> int | None:
    """Return up to which position of the log the connector has delivered; None when Connect does not know."""
    stored = connect.offset(f"headrace_{entry.name}")
    return max((int(stored[name]) for name in _POSITIONS if stored.get(name) is not None), default=None)


def after_failover(
    context: Context, connect: Connect, entry: SourceEntry, hold: Hold, state: ConnectorState, *, acts: bool
) -> str:
    """Return why changes are lost with the former server; empty when none are, or it is not known yet.

    Args:
        context: The installation.
        connect: Its Connect.
        entry: The source, whose timeline was another one.
        hold: What the new server says.
        state: Of the connector.
        acts: Whether to let the connector through when the proof is there. It is stopped for the proof: a
            task that still reads from the former server would deliver what nobody compares any more.
    """
    registry = Registry(context.registry)
    if registry.source(entry.name).timeline != entry.timeline or hold.timeline is None:
        return ""  # another has followed it since this look began, which may be of before
    capture = capture_of(context, entry)
    has = connect.config(capture.connector)
    if not has:
        return ""  # a connector that Connect has lost is another trouble
    wanted = source_of(context, entry).fenced(capture, has, hold.timeline)
    if has != wanted:
        if not note_loaded(registry, Kafka(context.kafka_bootstrap), capture, entry):
            return (
                f"the database went from timeline {entry.timeline} to {hold.timeline} while its tables were"
                " first read: it was restored or failed over"
            )
        if hold.ancestry is None:
            return ""  # the new server has not told yet where it left the former timeline
        with _at_rest(connect, capture.connector, state) if acts else nullcontext():
            if why := not_proven(entry, hold, delivered(connect, entry)):
                # Another look may have followed it meanwhile: then what is delivered is of the new timeline.
                overtaken = registry.source(entry.name).timeline != entry.timeline
                return "" if overtaken or connect.config(capture.connector) != has else why
            if acts:
                connect.reconfigure(capture.connector, wanted)
    if acts:
        if state.connector == "STOPPED":  # by a look that died before it could let the connector go on
            connect.resume(capture.connector)
        registry.note(f"source {entry.name}", "failover followed", why=f"timeline {hold.timeline}")
        note_position(registry, entry, hold, delivered(connect, entry))
    return ""


@contextmanager
def _at_rest(connect: Connect, connector: str, state: ConnectorState) -> Iterator[None]:
    """Have the connector's task at an end meanwhile; then it reads on, or is paused if it was."""
    try:
        connect.end_task(connector)
        yield
    finally:
        (connect.pause if state.connector == "PAUSED" else connect.resume)(connector)


def keep_fence(context: Context, connect: Connect, entry: SourceEntry) -> None:
    """Have the connector read the source's timeline only, whatever has written its configuration since."""
    if entry.timeline is not None:
        _fence(context, connect, entry, entry.timeline)


def open_fence(context: Context, connect: Connect, entry: SourceEntry, hold: Hold) -> None:
    """Let the connector of a source whose changes are lost read on after a failover.

    There is nothing left to prove, and a slot that is not read keeps all of the database's log. A recovery
    that is under way has a fence of its own.
    """
    registry = Registry(context.registry)
    now = registry.source(entry.name)
    with registry.reading() as session:
        recovers = session.get(RecoveryEntry, entry.name) is not None
    same = now.is_life_of(entry) and now.gap and now.timeline == entry.timeline
    if same and not recovers and moved(entry, hold) and not hold.active:
        _fence(context, connect, entry, None)


def refuse_moved(entry: SourceEntry, hold: Hold, again: str) -> None:
    """Refuse to go on with a load that has read from a server that is no longer the database.

    Raises:
        SourceError: With code ``SOURCE_FAILED_OVER``.
    """
    if moved(entry, hold):
        raise SourceError(
            f"The database of {entry.name} failed over, or was restored, while its tables were read:"
            f" timeline {entry.timeline} is now {hold.timeline}.",
            code="SOURCE_FAILED_OVER",
            hint=again,
        )


def _fence(context: Context, connect: Connect, entry: SourceEntry, timeline: int | None) -> None:
    capture = capture_of(context, entry)
    has = connect.config(capture.connector)
    wanted = source_of(context, entry).fenced(capture, has, timeline)
    if has and has != wanted:
        connect.reconfigure(capture.connector, wanted)
