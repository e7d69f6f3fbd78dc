"""Waiting until a source streams. What it waits for is told, and no wait is without an end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from connectors.base import Capture, Hold, Source
from headrace.control.beats import told_otherwise
from headrace.control.capture import capture_of, source_of
from headrace.control.connect import Connect, ConnectorState
from headrace.control.connect_log import last_error
from headrace.control.context import Context
from headrace.control.failover import refuse_moved
from headrace.control.first_load import note_loaded, read_again
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry
from headrace.control.remedies import waiting_for
from headrace.control.snapshot import MOST_ATTEMPTS, initial
from headrace.model.errors import SourceError

__all__ = ["wait_streaming"]

_TASK_START_S = 120.0
_SLOT_S = 600.0
"""So long the connector may wait for others: its slot for their transactions, its reading for their locks."""
_RETRIED_S = 30.0
"""Longer than the connector pauses before it tries again to make its slot."""
_STALLS_S = 600.0
"""So long a connector that runs and waits for nobody may tell nothing new."""
_LOOK_S = 1.0
"""So often is it looked whom the connector keeps waiting, and for whom it waits."""
_BEATS = 5
"""Of the snapshot and of the stream: both are compared with what the database holds."""


def _refuse_elsewhere(hold: Hold, name: str, slot: str, *, read: bool) -> None:
    """Refuse a connector that reads another database than the one that was asked for.

    A slot is made before the first row is read, and belongs to one database of one server.

    Args:
        hold: What our database keeps for the connector.
        name: The source.
        slot: The statement that drops its slot, in the database where that is.
        read: Whether the connector has read rows, and so has a slot somewhere.

    Raises:
        SourceError: With code ``SOURCE_ELSEWHERE``.
    """
    if hold.elsewhere:
        where = hold.elsewhere
    elif read and not hold.exists:
        where = "another server than this command, or another database"
    else:
        return
    raise SourceError(
        f"The connector of {name} reads {where}: its address is understood otherwise there.",
        code="SOURCE_ELSEWHERE",
        hint="Give an address that names the same server for this machine and for Connect's, and a database"
        f" whose name is of letters, digits, - and _. A slot that it has made there stays; if no other source"
        f" has it, run this there: {slot}",
    )


@dataclass
class _Wait:
    """One wait for one source."""

    name: str
    source: Source
    capture: Capture
    say: Callable[[str], None]
    _told: str = field(default="", init=False)
    _looked: float = field(default=float("-inf"), init=False)
    _hold: Hold | None = field(default=None, init=False)
    _idle_since: float | None = field(default=None, init=False)
    _waits_since: float | None = field(default=None, init=False)
    _waited_for: float = field(default=float("-inf"), init=False)
    _seen: tuple[object, ...] = field(default=(), init=False)
    _moved: float = field(default_factory=time.monotonic, init=False)

    def tell(self, text: str) -> None:
        if text != self._told:
            self.say(text)
            self._told = text

    def hold(self, *, now: bool = False) -> Hold:
        """Return what the database keeps, at most a second old or of ``now``; let others have their turn."""
        if now or self._hold is None or time.monotonic() - self._looked > _LOOK_S:
            self.source.give_way(self.capture)
            self._hold = self.source.hold(self.capture, loading=True)
            self._looked = time.monotonic()
        return self._hold

    def bear(self, state: ConnectorState, again: str) -> None:
        """Tell for whom the connector waits; end the wait when it has lasted too long for nothing.

        Args:
            state: Of the connector.
            again: What to run once the cause is mended.

        Raises:
            SourceError: ``SOURCE_WAITS``, ``CONNECTOR_NOT_STARTED``.
        """
        now, waits = time.monotonic(), self.hold().waits
        who, ends = waiting_for(waits)
        if waits:
            # Without the seconds, or each look would be news.
            self.tell(f"Postgres waits for {waits[0].who.partition(', ')[0]}: {waits[0].ends}")
            self._waited_for, self._idle_since = now, None
            self._waits_since = now if self._waits_since is None else self._waits_since
            if now - self._waits_since > _SLOT_S:
                raise SourceError(
                    f"The connector of {self.name} has waited {now - self._waits_since:.0f} s for {who}.",
                    code="SOURCE_WAITS",
                    hint=f"{ends} -- then: {again}",
                )
            return
        if now - self._waited_for > _RETRIED_S:
            self._waits_since = None  # the connector gives a slot up after a while, and tries again
        if state.running:
            self._idle_since = None
            return
        self._idle_since = now if self._idle_since is None else self._idle_since
        if now - self._idle_since > _TASK_START_S:
            raise SourceError(
                f"The connector of {self.name} has not run for {now - self._idle_since:.0f} s"
                f" (connector {state.connector}, task {state.task}).",
                code="CONNECTOR_NOT_STARTED",
                hint=f"Connect's log may say why. Then: {again}",
            )

    def moves(self, seen: tuple[object, ...], again: str) -> None:
        """End the wait for a connector that runs, waits for nobody and has told nothing new for too long.

        Args:
            seen: What is seen of it; anything else than before is news.
            again: What to run once the cause is mended.

        Raises:
            SourceError: ``CONNECTOR_STALLED``.
        """
        now = time.monotonic()
        if seen != self._seen or self.hold().waits:
            self._seen, self._moved = seen, now
        elif now - self._moved > _STALLS_S:
            raise SourceError(
                f"The connector of {self.name} runs, and has told nothing new for {now - self._moved:.0f} s.",
                code="CONNECTOR_STALLED",
                hint=f"Connect's log may say why. Then: {again}",
            )


def wait_streaming(
    context: Context, name: str, *, again: str, say: Callable[[str], None] = lambda _: None
) -> None:
    """Return when the initial snapshot is complete and the connector holds its slot.

    Args:
        context: The installation.
        name: The source.
        again: What to run once the cause of a failure is mended.
        say: Told how far it is, and for whom it waits.

    Raises:
        SourceError: When the connector fails (``CONNECTOR_FAILED``), does not start
            (``CONNECTOR_NOT_STARTED``), waits for the transactions of others for too long
            (``SOURCE_WAITS``), reads another database (``SOURCE_ELSEWHERE``), begins to read again and
            again (``SOURCE_LOAD_RESTARTS``) or tells nothing new for too long (``CONNECTOR_STALLED``), or the
            database fails over meanwhile (``SOURCE_FAILED_OVER``).
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    kafka = Kafka(context.kafka_bootstrap)
    topics = [table.topic for table in entry.tables]
    wait = _Wait(name, source_of(context, entry), capture_of(context, entry), say)
    expected = sum(wait.source.estimate_rows([schema.table for schema in wait.capture.tables]).values())
    # A wait that is taken up again counts anew: what ended the earlier tries may have been mended.
    earlier = max(initial(kafka, wait.capture).attempts - 1, 0)
    with Connect(context.connect_url) as connect:
        while True:
            state = connect.state(wait.capture.connector)
            if state.failed:
                raise SourceError(
                    f"The connector of {name} failed: {state.trace}",
                    code="CONNECTOR_FAILED",
                    hint=f"Mend the cause, then: {again}",
                )
            wait.bear(state, again)
            refuse_moved(entry, wait.hold(), again)
            if state.running:
                rows = sum(high for _, high in kafka.ends(topics).values())
                # A slot that was not there at the last look may have been made before the first row.
                hold = wait.hold(now=rows > 0 and not wait.hold().exists)
                _refuse_elsewhere(hold, name, wait.source.leftovers(wait.capture)[0], read=rows > 0)
                if note_loaded(registry, kafka, wait.capture, registry.source(name)) and wait.hold().active:
                    beats = kafka.tail(wait.capture.topic(wait.capture.heartbeat), _BEATS)
                    if wrong := told_otherwise(entry.kind, beats):
                        raise SourceError(
                            f"Values of {name} would not arrive as they are: {wrong}.",
                            code="SOURCE_MISREAD",
                            hint=f"Then: {again}",
                        )
                    refuse_moved(entry, wait.hold(now=True), again)
                    return
                # Of all tries: one that was passed over would otherwise begin the count again.
                attempts = initial(kafka, wait.capture).attempts - earlier
                if attempts > MOST_ATTEMPTS:
                    why = last_error(context.connect_log, wait.capture.connector, entry.created_ms)
                    raise SourceError(
                        f"The connector of {name} has begun to read the tables {attempts} times and has never"
                        f" come to the end{f'; the last error: {why}' if why else ''}.",
                        code="SOURCE_LOAD_RESTARTS",
                        hint=f"Connect's log says what ended each try. Mend that, then: {again}",
                    )
                if read_again(context, registry, kafka, name):
                    say("the connector was interrupted before its first row: it begins again")
                elif not wait.hold().waits:
                    of = f" of about {expected:,}" if expected else ""
                    turn = (
                        f", for the {attempts}. time: the connector was interrupted" if attempts > 1 else ""
                    )
                    wait.tell(f"reading the tables: {rows:,} rows{of}{turn}")
                wait.moves((rows, attempts, wait.hold().exists, wait.hold().active), again)
            time.sleep(0.2)
