"""What people ask of runs: start one, look at it, wait for it, pause, resume and abort it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from connectors.base import Source
from connectors.registry import why_unreadable
from headrace.control.capture import source_of
from headrace.control.context import Context
from headrace.control.fitness import in_words_of, refuse_not_streaming, refuse_unfit, unfit_now
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, ResnapshotEntry, SourceEntry, SourceTableEntry
from headrace.control.remedies import recover
from headrace.control.rest import resting, way_back
from headrace.control.runner import ensure_engine, runs_now
from headrace.control.runs import markers
from headrace.control.runs.chosen import Plan, sinks_of
from headrace.control.runs.left_out import Why, choose, raise_left_out, tell
from headrace.control.runs.repository import (
    ACTIVE,
    OVER,
    RESTING,
    Phase,
    again,
    end,
    insert,
    is_swept,
    keep_telling,
    raised,
    refuse_busy,
    run_of,
    topics_of,
)
from headrace.control.runs.wishes import ending, go_on, may_rest, want_end, wish
from headrace.control.runs.words import in_words
from headrace.model.errors import SinkError, SourceError, StackError, UsageError, naming
from headrace.model.schema import TableId

__all__ = [
    "MAX_LATENCY_MS",
    "Plan",
    "Swept",
    "abort",
    "hand_over",
    "marks_of",
    "pause",
    "plan",
    "resnapshot",
    "resume",
    "sinks_of",
    "start",
    "swept_by",
    "wait",
    "wait_whole",
]

Say = Callable[[str], None]
See = Callable[[ResnapshotEntry], None]
MAX_LATENCY_MS = 1_000
"""While a small question takes the database longer, a run rests."""
_POLL_S = 0.2
_UNATTENDED_S = 10.0
"""An engine that is replaced is gone for less."""
_ACTIVE = tuple(phase.value for phase in ACTIVE)


@dataclass(frozen=True, slots=True)
class Swept:
    """How many rows a sink held that the source no longer has."""

    sink: str
    table: str
    removed: int


def plan(
    context: Context,
    name: str,
    *,
    tables: Sequence[TableId] = (),
    sinks: Sequence[str] = (),
    queue: bool = False,
) -> Plan:
    """Return what :func:`start` would begin; changes nothing.

    Raises:
        HeadraceError: What :func:`start` would raise; and of tables that are named, of which the run would
            fail, with the code of what is wrong.
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    chosen, unreadable = choose(entry, tables)
    swept = sinks_of(registry, name, sinks)
    refuse_not_streaming(context, entry)
    if not queue:
        refuse_busy(registry, name, [table.topic for table in chosen])
    left_out = _words(entry, unreadable)
    source = source_of(context, entry)
    if tables:
        _refuse_unread(registry, entry, source, chosen)
    kafka = Kafka(context.kafka_bootstrap)
    if not tables:
        left_out |= in_words_of(name, unfit_now(registry, entry, source, chosen))
        chosen = [t for t in chosen if str(t.schema.table) not in left_out]
    return Plan(
        source=name,
        tables={str(t.schema.table): marks_of(kafka, entry, t) for t in chosen},
        sinks=tuple(found.name for found in swept),
        rows=sum(source.estimate_rows([t.schema.table for t in chosen]).values()),
        left_out=left_out,
    )


def _refuse_unread(
    registry: Registry, entry: SourceEntry, source: Source, chosen: Sequence[SourceTableEntry]
) -> None:
    """Refuse tables of which a run would fail."""
    reasons = {table.schema.table: why_unreadable(entry.kind, table.schema) for table in chosen}
    if told := [f"{table}: {why}" for table, why in reasons.items() if why]:
        raise SourceError(
            f"The connector cannot read these tables anew: {'; '.join(told)}.",
            code="RESNAPSHOT_UNREADABLE",
            hint=recover(entry.name),
        )
    with naming(entry.name):
        refuse_unfit(list(unfit_now(registry, entry, source, chosen).values()))


def start(
    context: Context,
    name: str,
    *,
    tables: Sequence[TableId] = (),
    sinks: Sequence[str] = (),
    sweep_many: bool = False,
    rows_per_second: int | None = None,
    max_latency_ms: int = MAX_LATENCY_MS,
    why: str = "",
    queue: bool = False,
    spare: bool = False,
    waits: bool = True,
) -> ResnapshotEntry:
    """Begin a run and return it at once; a process under the engine's guardian carries it out.

    Args:
        context: The installation.
        name: The source.
        tables: Which tables. All when empty, but for those that cannot be read anew, or not right: the run's
            plan names them, with the reason.
        sinks: Sweep only these; all when empty. The others apply the rows too, but keep what is gone.
        sweep_many: Allow a sweep that removes more than a fifth of a table's rows.
        rows_per_second: Read no more than about so many rows a second; as fast as it goes when None.
        max_latency_ms: Rest while a small question takes the database longer.
        why: For people who look at the run later.
        queue: Wait for another run that is at one of the tables; without it such a call is refused.
        spare: Leave tables that cannot be read out also where they are named, for nobody has chosen them.
        waits: Wait a while for a connector that is being started.

    Raises:
        SourceError: When the connector does not stream (``SOURCE_NOT_STREAMING``).
        UsageError: When another run is at one of the tables (``RESNAPSHOT_TABLE_BUSY``).
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    chosen, unreadable = choose(entry, tables, spare=spare)
    named = [sink.name for sink in sinks_of(registry, name, sinks)]
    refuse_not_streaming(context, entry, waits=waits)
    run = insert(
        registry,
        name,
        [table.topic for table in chosen],
        named,
        queue=queue,
        sweep_many=sweep_many,
        rows_per_second=rows_per_second,
        max_latency_ms=max_latency_ms,
        estimate=sum(source_of(context, entry).estimate_rows([t.schema.table for t in chosen]).values()),
        why=why,
        whole=spare or not tables,
        left_out=_words(entry, unreadable),
        also=lambda session: tell(session, entry, unreadable),
    )
    if not chosen:  # what stands upon them says what reads them, and asking again would change nothing
        return end(registry, run.id, Phase.COMPLETED)
    hand_over(context, run)
    return run


def resnapshot(
    context: Context,
    name: str,
    *,
    tables: Sequence[TableId] = (),
    sinks: Sequence[str] = (),
    sweep_many: bool = False,
    why: str = "",
    say: Say = lambda _: None,
) -> list[Swept]:
    """Start a run and :func:`wait` for it."""
    run = start(context, name, tables=tables, sinks=sinks, sweep_many=sweep_many, why=why)
    return swept_by(wait(context, run.id, see=in_words(say)))


def wait(context: Context, name: str, *, patient: bool = False, see: See = lambda _: None) -> ResnapshotEntry:
    """Return the run when it is completed.

    Args:
        context: The installation.
        name: The run's id.
        patient: Wait also for a sink that is at rest.
        see: Shown the run, several times a second.

    Raises:
        HeadraceError: What ended the run otherwise; or that it waits for a sink at rest (``SINK_AT_REST``),
            or was paused (``RESNAPSHOT_PAUSED``), or that no engine runs (``RESNAPSHOT_UNATTENDED``). The run
            then goes on as soon as it can.
    """
    registry, seen = Registry(context.registry), time.monotonic()
    while True:
        run = run_of(registry, name)
        if run.phase == Phase.COMPLETED.value:
            return run
        if run.phase not in _ACTIVE:
            raise raised(registry, run)
        see(run)
        if run.wanted == "pause" and not patient:
            message, hint = f"Run {run.id} is paused.", f"headrace resnapshot resume {run.id}"
            raise SourceError(message, code="RESNAPSHOT_PAUSED", hint=hint)
        if run.phase in (Phase.APPLYING.value, Phase.SWEEPING.value) and not patient:
            _refuse_at_rest(context, run)
        if not markers.there(context, run.id):
            hand_over(context, run)
        if runs_now(context):
            seen = time.monotonic()
        elif time.monotonic() - seen > _UNATTENDED_S:
            raise StackError(
                f"The engine does not run, so nobody works on run {run.id}, which is {run.phase}.",
                code="RESNAPSHOT_UNATTENDED",
                hint=f"headrace resnapshot resume {run.id}",
            )
        time.sleep(_POLL_S)


def wait_whole(context: Context, name: str, *, see: See = lambda _: None) -> None:
    """Return when the run has read every table that was meant.

    Raises:
        HeadraceError: As of :func:`wait`; or that it has left tables out (``RESNAPSHOT_UNREADABLE``).
    """
    run = wait(context, name, see=see)
    raise_left_out(Registry(context.registry).source(run.source), run)


def swept_by(run: ResnapshotEntry) -> list[Swept]:
    """Return what a run has removed."""
    swept = run.counts.get("swept", {})
    return [Swept(sink, table, rows) for sink, tables in swept.items() for table, rows in tables.items()]


def pause(context: Context, name: str) -> ResnapshotEntry:
    """Have a run rest where it is; rows that were read are applied all the same.

    Raises:
        UsageError: When it is over, or is to end (``RESNAPSHOT_OVER``).
    """
    registry = Registry(context.registry)
    run = wish(registry, run_of(registry, name).id, "pause")
    if run.wanted != "pause":
        raise _over(run, f"headrace resnapshot show {run.id}")
    return run


def resume(context: Context, name: str, *, sweep_many: bool = False, **pace: int | None) -> ResnapshotEntry:
    """Have a paused, failed or unfinished run go on where it was.

    Args:
        context: The installation.
        name: The run's id.
        sweep_many: Allow a sweep that removes more than a fifth of a table's rows.
        pace: ``rows_per_second`` and ``max_latency_ms`` as of :func:`start`, where they are to change.

    Raises:
        UsageError: When it is over, or is to end (``RESNAPSHOT_OVER``).
    """
    registry = Registry(context.registry)
    run = go_on(registry, run_of(registry, name).id, sweep_many=sweep_many, **pace)
    if run.wanted == "abort":
        # Whoever was to end one that nobody works on may have been killed.
        raise _over(run, f"headrace resnapshot {'abort' if Phase(run.phase) in RESTING else 'show'} {run.id}")
    if run.phase not in _ACTIVE:
        raise _over(run, again(registry, run))
    hand_over(context, run)
    return run


def abort(context: Context, name: str) -> ResnapshotEntry:
    """End a run where it is. Rows that were read stay; nothing more is removed from any sink.

    Raises:
        UsageError: When it is over (``RESNAPSHOT_OVER``).
        SinkError: When the engine does not let go of a shadow (``SINK_BUSY``).
    """
    registry = Registry(context.registry)
    run = want_end(registry, run_of(registry, name).id)
    if run.wanted != "abort":
        raise _over(run, f"headrace resnapshot show {run.id}")
    if Phase(run.phase) in RESTING:
        return _end_now(context, registry, run.id)
    hand_over(context, run)
    return run


def _end_now(context: Context, registry: Registry, name: str) -> ResnapshotEntry:
    """End a run that nobody works on, and that does not go on any more."""
    from headrace.control.runs.shadowing import give_up  # only here: who looks often imports no sink

    with ending(context, run_of(registry, name).source):
        run = want_end(registry, name)  # another command may have failed at it
        if Phase(run.phase) in ACTIVE:  # somebody had it go on meanwhile
            hand_over(context, run)
            return run
        if Phase(run.phase) not in RESTING:  # somebody else has ended it
            raise _over(run, f"headrace resnapshot show {run.id}")
        try:
            give_up(context, run)
        except BaseException:
            may_rest(registry, run.id)
            raise
        keep_telling(registry, run)
        return end(registry, run.id, Phase.ABORTED, among=RESTING)


def _over(run: ResnapshotEntry, hint: str) -> UsageError:
    how = "being aborted" if run.wanted == "abort" else run.phase
    return UsageError(f"Run {run.id} is {how}.", code=OVER, hint=hint)


def hand_over(context: Context, run: ResnapshotEntry) -> None:
    """Leave the run to the guardian, which is started when it does not run."""
    markers.leave(context, run.id)
    ensure_engine(context)


def _words(entry: SourceEntry, unreadable: Mapping[str, Why]) -> dict[str, str]:
    """Return table → why it is left out, and what reads it all the same."""
    return {
        str(table.schema.table): f"{unreadable[table.topic].reason}; `{recover(entry.name)}` reads it, too"
        for table in entry.tables
        if table.topic in unreadable
    }


def marks_of(kafka: Kafka, source: SourceEntry, table: SourceTableEntry) -> list[int]:
    """Return the ends of the table's topic, by partition.

    A sweep compares offsets, which order a key's records only as long as the key stays where it is.
    """
    ends = kafka.ends([table.topic])
    if len(ends) != source.partitions:
        raise SourceError(
            f"The topic {table.topic} has {len(ends)} partitions, and had {source.partitions}.",
            code="RESNAPSHOT_PARTITIONS",
            hint=recover(source.name),
        )
    return [ends[place][1] for place in sorted(ends)]


def _refuse_at_rest(context: Context, run: ResnapshotEntry) -> None:
    registry = Registry(context.registry)
    topics = topics_of(run)
    tables = [table for table in registry.source(run.source).tables if table.topic in topics]
    for sink in registry.sinks(run.source):
        left = [t for t in tables if t.topic in sink.tables and not is_swept(run, sink.name, t)]
        if sink.name not in run.plan["sinks"] or not left:
            continue
        if sink.name in run.plan.get("shadows", {}) and run.phase == Phase.SWEEPING.value:
            continue  # the run itself has it rest, while the shadow takes the target's place
        if state := resting(context, sink.name):
            why, way = way_back(context, sink.name, state)
            said = f"Sink {sink.name} is {state}, so what it holds cannot be swept yet. {why}".strip()
            raise SinkError(
                f"{said} Run {run.id} goes on by itself when it runs.", code="SINK_AT_REST", hint=way
            )
