"""The rules by which a source and a table × sink get their word.

Facts compete: the worst decides, and its remedy is told. What only follows from a fact stands behind all of
them: a store that nobody asks because its sink is paused is no worse than paused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.config.pipeline import SchemaPolicy
from headrace.control.gap import START_OVER, start_over
from headrace.control.heard import SILENT_AFTER_S, age_s, clock_back, unheard
from headrace.control.history import moved
from headrace.control.limits import kafka_forgets, slot_is_near_its_end
from headrace.control.looks import LOOKS_EVERY_S
from headrace.control.observation import SinkSeen, SourceSeen
from headrace.control.progress import TableProgress
from headrace.control.registry import Adding, SinkEntry, SourceTableEntry
from headrace.control.remedies import another_key, read_anew, waiting_for
from headrace.control.snapshot import MOST_ATTEMPTS
from headrace.control.verdicts import EVERY_SINK, FIRST_LOAD, ORDER, RESTARTED, State, Verdict
from headrace.model.errors import named

__all__ = ["is_watched", "proof_within_s", "source_verdict", "table_verdict"]

FRESH_WITHIN_S = 10.0
BATCH_WITHIN_S = 120.0
"""A store is asked between batches; a batch of many rows may take so long."""
PROOF_SLACK_S = 2.0
"""A heartbeat takes so long at most from its commit to us where nothing is amiss, and so does a look."""


def proof_within_s(seen: SourceSeen) -> float:
    """Return how old proof may be: of what was committed by a heartbeat, of what a store has by a look."""
    return float(seen.entry.settings["heartbeat_ms"]) / 1000 + PROOF_SLACK_S


def is_watched(seen: SourceSeen) -> bool:
    """Return whether the catalogue was looked at when proof may be of, or the next look is not overdue.

    A look at a large catalogue takes as long as the one before.
    """
    age = seen.unwatched_s
    return age is not None and abs(age) <= proof_within_s(seen) + LOOKS_EVERY_S + seen.look_s


def source_verdict(seen: SourceSeen) -> Verdict:
    """Say how the source does; the worst that was seen wins."""
    return _also(_source(seen), "" if seen.gap else slot_is_near_its_end(seen.hold))


def _also(said: Verdict, alarm: str) -> Verdict:
    """Return the verdict with an alarm behind its reason."""
    return replace(said, reason=f"{said.reason}; {alarm}".removeprefix("; ")) if alarm else said


def _worst(facts: Iterable[Verdict | None], beside: Iterable[Verdict | None] = ()) -> Verdict | None:
    """Return the worst of the facts, of equals the first that has a remedy; None without any.

    Args:
        facts: What was seen.
        beside: Those of them that are named in short behind the reason when they are not the worst.
    """
    worst = max(
        filter(None, facts), key=lambda fact: (ORDER.index(fact.state), bool(fact.remedy)), default=None
    )
    if worst is None:
        return None
    others = dict.fromkeys(_short(fact.reason) for fact in beside if fact is not None and fact is not worst)
    named = "; ".join(short for short in others if short and short not in worst.reason)
    return _also(worst, f"also: {named}" if named else "")


def _short(reason: str) -> str:
    return reason.partition("\n")[0].partition(";")[0]


def _source(seen: SourceSeen) -> Verdict:
    facts = (
        Verdict(State.RESYNC_REQUIRED, seen.gap, start_over(seen.entry.name, seen.hold, seen.sinks))
        if seen.gap
        else None,
        _connector(seen),
        _silent(seen),
        _moved(seen),
        clock_back(seen),
        _waiting(seen),
        None if seen.loaded else _loading(seen),
        _unserved(seen),
    )
    return _worst(facts, facts) or unheard(seen) or Verdict(State.STREAMING)


def _unserved(seen: SourceSeen) -> Verdict | None:
    """Return what is wrong with a table of a source that has no sink yet, at which it would be told."""
    if seen.sinks:
        return None
    names = {table.topic: table.schema.table for table in seen.entry.tables}
    return _worst(
        Verdict(State(found.state), f"{names[found.topic]}: {found.reason}", found.remedy)
        for found in seen.verdicts
        if found.state == State.RESYNC_REQUIRED.value
        and found.sink == EVERY_SINK
        # Sinks that come after a run begin with what it has found.
        and found.topic in names
        and not found.healed
    )


def _connector(seen: SourceSeen) -> Verdict | None:
    """Return the word for a connector that does not run."""
    name, connector = seen.entry.name, seen.connector
    resume, anew = f"headrace source resume {name}", START_OVER.format(name=name)
    if connector is None or connector.running:
        return None
    if connector.failed:
        return Verdict(State.FAILED, connector.trace, anew if connector.stuck else resume)
    if connector.connector in ("PAUSED", "STOPPED"):
        return Verdict(State.PAUSED, "the source is paused; the database keeps its WAL", resume)
    if connector.connector == "ABSENT":
        if seen.entry.adding == Adding.GOING.value:
            return Verdict(
                State.FAILED, "`source remove` has not come to its end", f"headrace source remove {name}"
            )
        begun = "`source add` has not come to its end: give it again if it was killed"
        unfinished = seen.entry.adding and not seen.sinks  # else it is refused, for it is in use
        return Verdict(State.FAILED, begun if unfinished else "Connect has lost the connector", anew)
    if not seen.loaded and not seen.attempts:
        return Verdict(State.SETUP, "the connector is starting")
    return Verdict(State.DEGRADED, f"the connector is {connector.task.lower()}")


def _silent(seen: SourceSeen) -> Verdict | None:
    if not seen.silent:
        return None
    reasons, hints = zip(*((part.reason, part.hint) for part in seen.silent), strict=True)
    return Verdict(State.DEGRADED, "; ".join(reasons), "; ".join(dict.fromkeys(filter(None, hints))))


def _moved(seen: SourceSeen) -> Verdict | None:
    if seen.hold is None or not moved(seen.entry, seen.hold):
        return None
    said = "another server has taken over; the connector waits until it is proven that it lacks nothing"
    return Verdict(State.DEGRADED, said, f"headrace source resume {seen.entry.name}")


def _waiting(seen: SourceSeen) -> Verdict | None:
    if seen.hold is None or not seen.hold.waits:
        return None
    who, ends = waiting_for(seen.hold.waits)
    return Verdict(State.SETUP, f"the connector waits for {who}", ends)


def table_verdict(
    source: SourceSeen,
    verdict: Verdict,
    sink: SinkSeen,
    table: SourceTableEntry,
    counters: TableProgress,
    behind: int | None,
    freshness: float | None,
) -> Verdict:
    """Return the word for one table at one sink.

    Args:
        source: What was seen of the source.
        verdict: The source's own word.
        sink: What was seen of the sink.
        table: The table.
        counters: The table's counters at the sink.
        behind: Records that the sink has not settled.
        freshness: Age of the table's state at the sink, seconds.
    """
    stands, engine, inherited = _standing(source, sink, table), _engine(sink), _inherited(verdict)
    unwatched = None if engine or inherited else _unwatched(source)  # who looks rests with them
    facts = (
        stands if stands is not None and stands.state is State.RESYNC_REQUIRED else None,
        _gap(source, sink, table),
        _untold(source, sink, table),
        engine,
        _troubled(counters),
        inherited,
        stands,
        _uncaptured(source, table),
        _weakness(source, table),
        _another_key(source, table, counters),
        _rows_behind(source, sink.entry, table, counters),
        _other_columns(source, sink.entry, counters),
        unwatched,
    )
    alarm = kafka_forgets(source.entry.settings, freshness) if behind else ""
    said = (
        _worst(facts, (engine, inherited))
        or _worst((_backlog(behind, freshness), _unproven(sink)))
        or Verdict(State.STREAMING, _ignored(sink.entry, counters))
    )
    return _also(said, alarm)


def _standing(source: SourceSeen, sink: SinkSeen, table: SourceTableEntry) -> Verdict | None:
    """Return the worst verdict of the registry upon the table."""
    name = sink.entry.name
    return _worst(
        Verdict(State(found.state), found.reason, found.remedy)
        for found in source.verdicts
        if found.topic == table.topic
        and (found.sink == name or (found.sink == EVERY_SINK and name not in found.healed))
        # What a snapshot that began again may have left is looked for when it has ended.
        and (source.loaded or found.code != RESTARTED)
    )


def _gap(source: SourceSeen, sink: SinkSeen, table: SourceTableEntry) -> Verdict | None:
    """Return the verdict when changes are missing from this table's history."""
    remedy = START_OVER.format(name=source.entry.name)
    if source.topic_ids is not None and source.topic_ids.get(table.topic) != table.topic_id:
        what = "was made anew" if table.topic in source.topic_ids else "is gone"
        return Verdict(State.RESYNC_REQUIRED, f"the topic {table.topic} {what}", remedy)
    if table.topic in sink.other_lives:
        said = f"the sink's query reads {table.topic} as it was before the source was recovered"
        return Verdict(State.RESYNC_REQUIRED, said, remedy)
    again = read_anew(source.entry, [table.schema])
    if table.topic in sink.entry.incomplete:
        lost = sink.entry.incomplete[table.topic]
        said = f"what {table.topic} tells does not make rows whole that are older than its offset {lost}"
        return Verdict(State.RESYNC_REQUIRED, said, again)
    if source.ends is None or sink.progress is None:
        return None
    if sum(topic == table.topic for topic, _ in source.ends) > source.entry.partitions:
        return Verdict(State.RESYNC_REQUIRED, f"the topic {table.topic} has got more partitions", remedy)
    for (topic, partition), (settled, end) in sink.beyond.items():
        if topic == table.topic:
            said = f"Kafka has lost records of {topic}: partition {partition} ends at {end}, and the sink has"
            return Verdict(State.RESYNC_REQUIRED, f"{said} settled up to {settled}", remedy)
    for (topic, partition), (first, _) in source.ends.items():
        settled = sink.progress.next_offsets.get((topic, partition), 0)
        if topic == table.topic and settled < first:
            return Verdict(
                State.RESYNC_REQUIRED,
                f"Kafka no longer holds offsets {settled} to {first - 1} of {topic}",
                again,
            )
    return None


def _weakness(source: SourceSeen, table: SourceTableEntry) -> Verdict | None:
    """Return the verdict when the database's log no longer tells all of this table."""
    found = source.hold.weakened.get(table.schema.table) if source.hold else None
    if found is None:
        return None
    return Verdict(State.DEGRADED, found.reason, named(found.remedy, source=source.entry.name))


def _engine(sink: SinkSeen) -> Verdict | None:
    """Return the verdict when the sink's own query is the trouble."""
    progress, resume = sink.progress, f"headrace sink resume {sink.entry.name}"
    if sink.withheld and not sink.paused:
        return Verdict(State.PAUSED, "its query rests while a command works on its targets")
    if sink.paused or (progress is not None and progress.state == "paused"):
        return Verdict(State.PAUSED, "the sink is paused; changes wait in Kafka", resume)
    if sink.engine == "starting":
        return Verdict(State.SETUP, "the engine is starting")
    silence = age_s(sink.now_ms, progress.updated_ms if progress else None)
    # One that runs speaks again within a second of a clock that was set back.
    if sink.engine in ("silent", "stopped") or (silence is not None and abs(silence) > SILENT_AFTER_S):
        since = f" {_since(silence)}" if silence is not None else ""
        return Verdict(State.FAILED, f"the engine has said nothing{since}", resume)
    if progress is None:
        return Verdict(State.SETUP, "the engine has not taken it up yet")
    error = progress.error or {}
    if progress.state in ("failed", "stopped", "removed"):
        reason = error.get("message", f"the query is {progress.state}")
        return Verdict(State.FAILED, reason, error.get("hint") or resume)
    if progress.state == "degraded":
        return Verdict(State.DEGRADED, error.get("message", ""), error.get("hint", ""))
    if progress.state == "starting":
        return Verdict(State.SETUP, "the query is starting")
    return None


def _untold(source: SourceSeen, sink: SinkSeen, table: SourceTableEntry) -> Verdict | None:
    """Return the verdict when the sink's query does not read the table, unless it is being taken in."""
    begun = {found.topic for found in source.verdicts if found.code == FIRST_LOAD}
    if table.topic not in sink.untold - begun:
        return None
    said = f"the pipeline file of {sink.entry.name} does not tell of the table: it is an older one"
    return Verdict(State.DEGRADED, said, f"headrace sink resume {sink.entry.name}")


def _troubled(counters: TableProgress) -> Verdict | None:
    """Return the verdict when the table's own target, or what Kafka has for it, is the trouble."""
    found = counters.trouble
    return Verdict(State(found["state"]), found["message"], found["hint"]) if found else None


def _loading(seen: SourceSeen) -> Verdict:
    """Return the verdict while the initial snapshot is not complete."""
    if seen.attempts > MOST_ATTEMPTS:
        said = f"the initial snapshot has begun {seen.attempts} times and has never come to the end"
        why = f"the last error: {seen.error}" if seen.error else "Connect's log says what ended each try"
        return Verdict(State.DEGRADED, f"{said}; {why}")
    why = f" ({seen.error})" if seen.error else ""
    again = (
        f", for the {seen.attempts}. time: the connector was interrupted{why}" if seen.attempts > 1 else ""
    )
    return Verdict(State.SNAPSHOTTING, f"the initial snapshot is under way{again}")


def _unproven(sink: SinkSeen) -> Verdict | None:
    """Return the verdict when the store has not been asked for long what it has."""
    age = age_s(sink.now_ms, sink.progress.checked_ms if sink.progress else None)
    if age is not None and 0 <= age <= SILENT_AFTER_S:  # what is of a time to come proves nothing
        return None
    applying = age_s(sink.now_ms, sink.progress.applying_since_ms if sink.progress else None)
    if applying is not None and 0 <= applying <= BATCH_WITHIN_S and (age is None or age > 0):
        said = f"many records have been applied for {applying:.0f} s; the store is asked after them"
        return Verdict(State.CATCHING_UP, said)
    said = _since(age) if age is not None else "since the engine began"
    return Verdict(State.DEGRADED, f"the store has not told {said} what it holds")


def _since(age: float) -> str:
    return f"for {age:.0f} s" if age >= 0 else "since the clock was set back"


def _unwatched(source: SourceSeen) -> Verdict | None:
    """Return the verdict when nobody has looked at the catalogue for long: not all is in the log."""
    age = source.unwatched_s
    if age is not None and abs(age) <= max(SILENT_AFTER_S, LOOKS_EVERY_S + 2 * source.look_s):
        return None
    said = f"not looked at {f'for {age:.0f} s' if age is not None else 'yet'}"
    why = f"the database's catalogue was {said}, so what its log does not tell may be missing"
    return Verdict(State.DEGRADED, why)


def _uncaptured(source: SourceSeen, table: SourceTableEntry) -> Verdict | None:
    if source.hold is None or table.schema.table not in source.hold.uncaptured:
        return None
    return Verdict(
        State.FAILED,
        "the publication lacks the table: it was dropped, perhaps made anew, or taken out",
        f"headrace source refresh {source.entry.name}",
    )


def _inherited(verdict: Verdict) -> Verdict | None:
    return verdict if verdict.state is not State.STREAMING else None


_CHANGED = ("added", "missing")


def _difference(counters: TableProgress) -> str:
    drift = counters.drift or {}
    return "; ".join(f"columns {word}: {', '.join(drift[word])}" for word in _CHANGED if drift.get(word))


def _ignored(sink: SinkEntry, counters: TableProgress) -> str:
    said = _difference(counters)
    return f"{said}: ignored, as the sink is told to" if said else ""


def _another_key(source: SourceSeen, table: SourceTableEntry, counters: TableProgress) -> Verdict | None:
    key = (counters.drift or {}).get("key")
    if not key:
        return None
    said = f"the table's key is ({', '.join(key)}) now: other rows are meant than those mirrored"
    return Verdict(State.FAILED, said, another_key(source.entry, source.sinks, table.schema.table))


def _rows_behind(
    source: SourceSeen, sink: SinkEntry, table: SourceTableEntry, counters: TableProgress
) -> Verdict | None:
    if not counters.behind:
        return None
    rows = "1 row is" if counters.behind == 1 else f"{counters.behind:,} rows are"
    return Verdict(
        State.DEGRADED,
        f"{rows} behind: changes of theirs are in the dead letter queue",
        f"headrace dlq list --sink {sink.name}; or {read_anew(source.entry, [table.schema])}",
    )


def _other_columns(source: SourceSeen, sink: SinkEntry, counters: TableProgress) -> Verdict | None:
    said = _difference(counters)
    if not said or SchemaPolicy(sink.on_schema_change) is SchemaPolicy.IGNORE:
        return None
    return Verdict(
        State.DEGRADED,
        f"the table's columns are not those mirrored ({said})",
        f"headrace source refresh {source.entry.name}",
    )


def _backlog(behind: int | None, freshness: float | None) -> Verdict | None:
    if behind and (freshness is None or freshness > FRESH_WITHIN_S):
        return Verdict(State.CATCHING_UP, f"{behind:,} records to apply")
    return None
