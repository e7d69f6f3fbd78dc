"""One writer per target: a query claims what it writes to, and stops writing where it finds another's claim.

Rows cannot go back in their history whoever writes them; claims are for what versions do not see: another
installation, whose positions mean something else, a copy of this one, a driver that was stopped and wakes up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from headrace.config.holders import holders, remember
from headrace.config.pipeline import PipelineSpec
from headrace.model.change import Change
from headrace.model.claim import Claim
from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.key import Key
from headrace.model.life import topic_in
from headrace.model.outcome import Outcome
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema
from sinks.base import Place, Progress, Sink, Stored

__all__ = ["Fenced", "Holding"]

_TRUSTED_S = 0.25
"""For so long a claim that was seen counts as standing."""

_NOTICED_S = 2 * _TRUSTED_S
"""After so long whoever was writing has noticed that the target was claimed by another."""

_REMEMBERED = 200

_ours: set[str] = set()
"""Holders this process has been; what they wrote is written."""


class Holding:
    """One sink's place as the writer to its targets: taken when first needed, kept until it is given up.

    Args:
        spec: The sink's pipeline.
        store: Gives its store; called when that is first needed.
    """

    def __init__(self, spec: PipelineSpec, store: Callable[[], Sink]) -> None:
        self._spec = spec
        self._store = store
        self._held: str | None = None
        self._lock = threading.Lock()

    def pipeline(self) -> str:
        """Return the pipeline as JSON, with the holder that may write now.

        A table that another installation has claimed is left to it; who writes there is refused.

        Raises:
            SinkError: When another than this installation's last holder has claimed all targets, or a copy of
                this installation has one of them (``SINK_FENCED``).
            SinkUnavailable: When the store does not say.
        """
        with self._lock:
            if self._held is None:
                self._held = _take(self._spec, self._store()).model_dump_json()
            return self._held

    def give_up(self) -> None:
        """Ask the store again before the next write."""
        with self._lock:
            self._held = None


def _take(spec: PipelineSpec, sink: Sink) -> PipelineSpec:
    known = holders(spec.owner) or []
    claim = Claim.new(spec.sink, spec.home, engine=True)
    schemas = [table.schema_ for table in spec.tables]
    standing = sink.claims(schemas)
    others = {table: one for table, one in standing.items() if one.holder not in known}
    elsewhere = {table for table, one in others.items() if one.home != spec.home}
    schemas = [schema for schema in schemas if schema.table not in elsewhere]
    if schemas:
        standing = {table: one for table, one in standing.items() if table not in elsewhere}
    _refuse_others(spec.sink, standing, known)
    # Before the claim is made: a driver that dies between the two still knows its own mark.
    # Older ones stay known: a store that was restored from a backup shows one of them.
    remember(spec.owner, [claim.holder, *known][:_REMEMBERED])
    if sink.claim(schemas, claim, standing):
        _refuse_others(spec.sink, sink.claims(schemas), known)
        raise _fenced(spec.sink, None)
    if any(before.engine and before.holder not in _ours for before in standing.values()):
        time.sleep(_NOTICED_S)
    _ours.add(claim.holder)
    return spec.model_copy(update={"holder": claim.holder})


def _refuse_others(sink: str, standing: Mapping[TableId, Claim], known: Iterable[str]) -> None:
    for claim in standing.values():
        if claim.holder not in known:
            raise _fenced(sink, claim)


def _fenced(sink: str, claim: Claim | None, table: TableId | None = None) -> SinkError:
    if claim is None:
        message = f"The claim of sink {sink} upon its targets was removed."
    else:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(claim.at_ms / 1000))
        what = "the targets" if table is None else f"the target of {table}"
        stopped = "This one has stopped." if table is None else "This one has stopped there."
        message = (
            f"Another writer took {what} of sink {sink} over at {at} UTC: "
            f"sink {claim.sink} of installation {claim.home}. {stopped}"
        )
    hint = f"When the other is gone or paused: headrace sink resume {sink} --take-over"
    return SinkError(message, code="SINK_FENCED", hint=hint, table=table)


class Fenced:
    """A sink that writes only while its holder's claim stands; the rest is the sink's own.

    A claim is looked at when the last look is older than a quarter of a second, so that many small
    batches cost few questions, and a process that slept asks before it goes on.
    """

    def __init__(self, sink: Sink, spec: PipelineSpec) -> None:
        self._sink = sink
        self._name, self._home = spec.sink, spec.home
        self._holder = spec.holder
        self._schemas = {table.topic: table.schema_ for table in spec.tables}
        self._lives = {table.topic: table.life for table in spec.tables}
        self._seen: dict[TableId, float] = {}
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def prepare(self, schema: TableSchema) -> None:
        """Make the target, or give it its shape, if the claim stands."""
        self._look([schema])
        self._sink.prepare(schema)

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        """Apply, if the claim stands."""
        self._look([schema])
        return self._sink.apply(schema, changes)

    def rows(self, schema: TableSchema, keys: Sequence[Key]) -> dict[Key, Stored]:
        """Read rows, if the claim stands: another writer may have moved them on."""
        self._look([schema])
        return self._sink.rows(schema, keys)

    def truncate(self, schema: TableSchema, position: Position) -> int:
        """Truncate, if the claim stands."""
        self._look([schema])
        return self._sink.truncate(schema, position)

    def progress(self, places: Collection[Place] | None = None) -> Progress:
        """Return what was settled of the topics as they are now: of another incarnation nothing counts."""
        lives = self._lives.values()
        named = None if places is None else [(self._lives.get(topic, topic), n) for topic, n in places]
        stored = self._sink.progress(named)
        return {(topic_in(life), n): offset for (life, n), offset in stored.items() if life in lives}

    def settle(self, progress: Progress) -> None:
        """Settle what is of tables upon which the claims stand; the store goes on to lack the rest."""
        theirs = self._taken(self._schemas[topic] for topic in {place[0] for place in progress})
        mine = {p: end for p, end in progress.items() if self._schemas[p[0]].table not in theirs}
        if mine:
            self._sink.settle(
                {(self._lives.get(topic, topic), n): offset for (topic, n), offset in mine.items()}
            )

    def maintain(self, seconds: float, leave: Collection[TableId] = ()) -> bool:
        """Tidy up where the claims stand."""
        return self._sink.maintain(seconds, {*leave, *self._taken(self._schemas.values())})

    def _taken(self, schemas: Iterable[TableSchema]) -> set[TableId]:
        """Return the tables that another installation has claimed.

        Raises:
            SinkError: When this query may write nowhere any more (``SINK_FENCED``).
        """
        left, taken = list(schemas), set[TableId]()
        while left:
            try:
                self._look(left)
            except SinkError as error:
                if error.table is None or isinstance(error, SinkUnavailable):
                    raise
                taken.add(error.table)
                left = [schema for schema in left if schema.table != error.table]
            else:
                break
        return taken

    def _look(self, schemas: Sequence[TableSchema]) -> None:
        """Make sure that the claims stand.

        Raises:
            SinkError: When one does not (``SINK_FENCED``).
        """
        with self._lock:
            now = time.monotonic()
            old = [s for s in schemas if now - self._seen.get(s.table, float("-inf")) > _TRUSTED_S]
            if not old:
                return
            standing = self._sink.claims(old)
            for schema in old:
                claim = standing.get(schema.table)
                if claim is None or claim.holder != self._holder:
                    raise self._refusal(schema.table, claim)
                self._seen[schema.table] = now

    def _refusal(self, table: TableId, claim: Claim | None) -> SinkError:
        """Return why one table is not written to; it is that of all when nothing is this query's any more."""
        if claim is not None and claim.home != self._home:
            standing = self._sink.claims(list(self._schemas.values()))
            if any(one.holder == self._holder for one in standing.values()):
                return _fenced(self._name, claim, table)
        return _fenced(self._name, claim)
