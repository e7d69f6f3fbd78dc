"""The words of status, and verdicts that stand in the registry until they are proven to be over."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from sqlalchemy import select
from sqlalchemy.orm import Session

from headrace.control.registry import Registry, SinkEntry, SourceEntry, VerdictEntry, living, moment, now_ms

__all__ = [
    "EMPTIED",
    "EVERY_SINK",
    "FIRST_LOAD",
    "LEFT_OUT",
    "LEFT_TO_RUN",
    "ORDER",
    "REFRESHED",
    "REMADE",
    "RESTARTED",
    "RETYPED",
    "TAKEN_BACK",
    "UNARRIVED",
    "UNTIL_READ",
    "State",
    "Verdict",
    "first_loaded",
    "follow_types",
    "forget_sink",
    "forget_target",
    "healed",
    "lacking_later",
    "made_anew",
    "over",
    "record",
    "reword",
    "seen_again",
    "standing",
    "told_again",
]

EVERY_SINK = ""
EMPTIED = "PARTITION_EMPTIED"
"""Code of the verdict upon a table whose partitions have lost rows, or may have."""

FIRST_LOAD = "TABLE_FIRST_LOAD"
"""Code of the verdict upon a table that was added later, until its rows of before are read."""

LEFT_TO_RUN = "SOURCE_FIRST_LOAD"
"""Code of the verdict upon a large table of a new source, until a run has read its rows."""

LEFT_OUT = "RECOVERY_LEFT_OUT"
"""Code of the verdict upon a table whose target a recovery could not make right, until it is made anew."""

RESTARTED = "FIRST_LOAD_RESTARTED"
"""Code of the verdict upon a table that a first snapshot may have read before it was broken off."""

UNARRIVED = "FIRST_LOAD_UNARRIVED"
"""Code of the verdict upon a table of which a first snapshot has brought less than it has read."""

UNTIL_READ = (FIRST_LOAD, LEFT_TO_RUN)

RETYPED = "COLUMN_RETYPED"
"""Code of the verdict upon a table whose rows are decoded by types that its columns had."""

TAKEN_BACK = "SINK_TAKEN_BACK"
"""Code of the verdict upon a table to whose target another installation has written, until a recovery."""

_FOLLOWED = "COLUMN_FOLLOWED"
"""The same, once they are decoded by the types that the columns have now; and of rows without new columns."""

REFRESHED = (
    RETYPED,
    _FOLLOWED,
    "IDENTITY_REFUSED",
    "TABLE_UNPUBLISHED",
    "TABLE_PUBLISHED_IN_PART",
    "PUBLICATION_CHANGED",
    "TABLE_ANEW",
    "TABLE_GONE",
    "MONEY_MISREAD",
    "TYPE_NAMESAKE",
)
"""Codes for which ``source refresh`` mends publication and types, if need be, and reads the table anew."""

REMADE = "PIPELINE_REMADE"
"""Code of the verdict upon a table of which a sink that ignores changes of columns forgot which it had."""

_OF_PIPELINE = (*REFRESHED, REMADE)
"""Codes of what is wrong with what a sink applies, and not with what its targets keep when it is removed."""

_NAMESAKE = "TYPE_NAMESAKE"
"""Code of the verdict upon a table whose types the connector may mix up until it starts without namesakes."""

_STAND_READING = (RETYPED, TAKEN_BACK, _NAMESAKE)
"""Codes of verdicts that no run heals: what it reads is decoded as before, or older than what stands."""

_KEPT = ("state", "reason", "remedy", "first_ms")


class State(str, Enum):
    """One word, from best to worst as they are listed in :data:`ORDER`."""

    SETUP = "setup"
    SNAPSHOTTING = "snapshotting"
    STREAMING = "streaming"
    CATCHING_UP = "catching_up"
    PAUSED = "paused"
    DEGRADED = "degraded"
    FAILED = "failed"
    RESYNC_REQUIRED = "resync_required"


ORDER = (
    State.STREAMING,
    State.CATCHING_UP,
    State.SNAPSHOTTING,
    State.SETUP,
    State.PAUSED,
    State.DEGRADED,
    State.FAILED,
    State.RESYNC_REQUIRED,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A state, why, and what to do."""

    state: State
    reason: str = ""
    remedy: str = ""


def record(
    registry: Registry,
    source: SourceEntry,
    topics: Iterable[str],
    code: str,
    verdict: Verdict,
    *,
    sink: str = EVERY_SINK,
) -> list[str]:
    """Note that tables of a source were seen to be wrong just now; return the topics of which that is news.

    A verdict is known by its source, topic, sink and code. One that is seen again stays the one that it was,
    with a new time, and what earlier runs have healed counts no more.
    """
    with registry.begin() as session:
        mine = topics if living(session, source) else ()
        news = _noted(session, source.name, mine, code, verdict, sink)
    for topic in news:
        _tell(registry, source, topic, code, verdict, sink)
    return news


def _noted(
    session: Session, name: str, topics: Iterable[str], code: str, verdict: Verdict, sink: str = EVERY_SINK
) -> list[str]:
    """Note verdicts; return the topics of which that is news."""
    news, at = list[str](), moment(session, name)
    for topic in topics:
        found = session.get(VerdictEntry, (name, topic, sink, code))
        if found is None:
            found = VerdictEntry(source=name, topic=topic, sink=sink, code=code, first_ms=at)
            session.add(found)
            news.append(topic)
        found.state, found.reason, found.remedy = verdict.state.value, verdict.reason, verdict.remedy
        found.last_ms, found.healed = at, {}
    return news


def _tell(
    registry: Registry, source: SourceEntry, topic: str, code: str, verdict: Verdict, sink: str = EVERY_SINK
) -> None:
    registry.note(
        f"source {source.name}", "verdict", topic=topic, sink=sink, code=code, reason=verdict.reason
    )


def first_loaded(registry: Registry, source: SourceEntry, wrong: Iterable[tuple[str, str, Verdict]]) -> None:
    """Remember that the first load is complete, together with what is wrong with it.

    Only whoever is first does: a run may have healed since what another one has seen, too.

    Args:
        registry: The installation's registry.
        source: The source.
        wrong: Topic, code and verdict of each table that was not read right.
    """
    news: list[tuple[str, str, Verdict]] = []
    with registry.begin() as session:
        found = living(session, source)
        if found is None or found.loaded_ms is not None:
            return
        for topic, code, verdict in wrong:
            if _noted(session, source.name, [topic], code, verdict):
                news.append((topic, code, verdict))
        found.loaded_ms, found.heard = now_ms(), None
    for one in news:
        _tell(registry, source, *one)


def reword(
    registry: Registry, source: str, topic: str, code: str, verdict: Verdict, *, sink: str = EVERY_SINK
) -> None:
    """Change the words of a verdict, if it still stands."""
    with registry.begin() as session:
        found = session.get(VerdictEntry, (source, topic, sink, code))
        if found is not None:
            found.state, found.reason, found.remedy = verdict.state.value, verdict.reason, verdict.remedy


def worsen(registry: Registry, source: str, topic: str, code: str, doubt: State, verdict: Verdict) -> None:
    """Have what stands in doubt of a table be certain, at sinks that come later as well; else do nothing.

    It is as old as the doubt, so that a run which began after that heals it. Sinks at which nothing of it
    stands any more are right.
    """
    with registry.begin() as session:
        query = select(VerdictEntry).where(
            VerdictEntry.source == source, VerdictEntry.topic == topic, VerdictEntry.code == code
        )
        every = session.scalars(query).all()
        mine = [found for found in every if found.state == doubt.value]
        for found in mine:
            found.state, found.reason, found.remedy = verdict.state.value, verdict.reason, verdict.remedy
        if not mine or any(found.sink == EVERY_SINK for found in every):
            return
        sinks = session.scalars(select(SinkEntry).where(SinkEntry.source == source))
        right = {sink.name for sink in sinks if topic in sink.tables} - {found.sink for found in every}
        told = {name: getattr(mine[0], name) for name in ("source", "topic", "code", *_KEPT)}
        healed_ms = dict.fromkeys(right, moment(session, source))
        session.add(VerdictEntry(**told, sink=EVERY_SINK, last_ms=mine[0].last_ms, healed=healed_ms))


def seen_again(registry: Registry, source: str, topic: str, code: str, *, sink: str) -> None:
    """Note that a verdict was true just now; its words stay, and what earlier runs have healed."""
    with registry.begin() as session:
        found = session.get(VerdictEntry, (source, topic, sink, code))
        if found is not None:
            found.last_ms = moment(session, source)


def over(registry: Registry, source: str, topic: str, code: str, *, sink: str = EVERY_SINK) -> None:
    """Forget a verdict whose cause is gone and that left nothing wrong behind."""
    with registry.begin() as session:
        found = session.get(VerdictEntry, (source, topic, sink, code))
        if found is not None:
            session.delete(found)


def healed(registry: Registry, source: str, topic: str, sink: str, begun_ms: int) -> None:
    """Note that a run which began at ``begun_ms`` has made the table right at one sink.

    Only verdicts of before are healed. One that is meant for every sink goes when each of them is healed.
    Types that are not followed yet are not healed by reading: see :func:`follow_types`. Nor are rows of
    another installation: only those of a recovery are newer.
    """
    with registry.begin() as session:
        query = select(VerdictEntry).where(
            VerdictEntry.source == source,
            VerdictEntry.topic == topic,
            VerdictEntry.sink.in_((sink, EVERY_SINK)),
            VerdictEntry.last_ms < begun_ms,
            VerdictEntry.code.not_in(_STAND_READING),
        )
        entries = session.scalars(select(SinkEntry).where(SinkEntry.source == source))
        needed = {entry.name for entry in entries if topic in entry.tables}
        for found in session.scalars(query):
            found.healed = {**found.healed, sink: begun_ms}
            if found.sink == sink or needed <= found.healed.keys():
                session.delete(found)


def follow_types(
    registry: Registry,
    source: str,
    followed: Mapping[str, Iterable[str]],
    seen_ms: int,
    unserved: Collection[str] = (),
) -> None:
    """Note that rows are decoded by the new types from now on; what sinks hold of before is still wrong.

    So it is when the connector has started anew, and mixes up no namesakes any more.

    What was said of every sink is said of each one then, for each follows in its own time.

    Args:
        registry: The installation's registry.
        source: The source.
        followed: Sink → topics of the tables that it decodes by the new types.
        seen_ms: When the types were looked up. What was told later may be of yet another type.
        unserved: Topics of tables that no sink has, and of which sinks to come are told the new types.
    """
    with registry.begin() as session:
        entries = session.scalars(select(SinkEntry).where(SinkEntry.source == source))
        needed = {entry.name: entry.tables for entry in entries}
        query = select(VerdictEntry).where(
            VerdictEntry.source == source,
            VerdictEntry.code.in_((RETYPED, _NAMESAKE)),
            VerdictEntry.last_ms < seen_ms,
        )
        changed = {topic for topics in followed.values() for topic in topics}
        # What was read until now was read by the old ones.
        now = moment(session, source)
        for found in session.scalars(query).all():
            if found.topic not in changed and found.topic not in unserved:
                continue
            told = {name: getattr(found, name) for name in ("source", "topic", *_KEPT)} | {"healed": {}}
            before, code = found.last_ms, found.code
            session.delete(found)
            session.flush()
            if found.sink == EVERY_SINK or found.topic in unserved:  # of sinks that come later
                told_of = told | {"healed": _told_apart(session, source, found.topic)}
                session.merge(VerdictEntry(**told_of, sink=EVERY_SINK, code=_FOLLOWED, last_ms=now))
            for sink in needed if found.sink == EVERY_SINK else (found.sink,):
                if found.topic in followed.get(sink, ()):
                    session.merge(VerdictEntry(**told, sink=sink, code=_FOLLOWED, last_ms=now))
                elif found.topic in needed.get(sink, ()):
                    session.merge(VerdictEntry(**told, sink=sink, code=code, last_ms=before))


def lacking_later(registry: Registry, source: SourceEntry, topic: str, verdict: Verdict) -> None:
    """Note what is wrong of a table at sinks that come later: rows of before are told without new columns.

    The sinks that are there lack the same, which is noted of each.
    """
    with registry.begin() as session:
        if living(session, source):
            told = _told_apart(session, source.name, topic)
            _noted(session, source.name, [topic], _FOLLOWED, verdict)
            session.get_one(VerdictEntry, (source.name, topic, EVERY_SINK, _FOLLOWED)).healed = told


def _told_apart(session: Session, source: str, topic: str) -> dict[str, int]:
    """Return the sinks of which it is noted by itself what rows of before lack.

    One that came after an earlier change lacks what that brought, and nothing of it is noted of that sink.
    """
    sinks = session.scalars(select(SinkEntry).where(SinkEntry.source == source))
    before = session.get(VerdictEntry, (source, topic, EVERY_SINK, _FOLLOWED))
    here = (sink.name for sink in sinks if topic in sink.tables)
    return {name: now_ms() for name in here if before is None or name in before.healed}


def forget_sink(session: Session, source: str, name: str) -> None:
    """Have one that comes under the name of a sink that goes be told of what rows lack, as any that comes.

    What is wrong with the rows that its targets keep is remembered until :func:`forget_target`.
    """
    entries = select(VerdictEntry).where(VerdictEntry.source == source)
    for found in session.scalars(entries.where(VerdictEntry.sink == name)).all():
        if found.code in _OF_PIPELINE:
            session.delete(found)
    later = entries.where(VerdictEntry.sink == EVERY_SINK, VerdictEntry.code == _FOLLOWED)
    for found in session.scalars(later):
        found.healed = {sink: at for sink, at in found.healed.items() if sink != name}


def forget_target(registry: Registry, source: str, topic: str, sink: str) -> None:
    """Note that a sink's target of a table is gone, and with it all that was wrong there."""
    query = select(VerdictEntry).where(
        VerdictEntry.source == source, VerdictEntry.topic == topic, VerdictEntry.sink == sink
    )
    with registry.begin() as session:
        for found in session.scalars(query).all():
            session.delete(found)


def told_again(registry: Registry, source: str, topic: str, begun_ms: int) -> None:
    """Note that a run which began at ``begun_ms`` has read a table, so that its topic tells what it lacked.

    Sinks that come later take that from there, also those that have come while it read.
    """
    with registry.begin() as session:
        found = session.get(VerdictEntry, (source, topic, EVERY_SINK, _FOLLOWED))
        if found is not None and found.last_ms < begun_ms:
            session.delete(found)


def standing(registry: Registry, source: str) -> Sequence[VerdictEntry]:
    """Return every verdict that stands upon tables of a source."""
    query = select(VerdictEntry).where(VerdictEntry.source == source).order_by(VerdictEntry.first_ms)
    with registry.reading() as session:
        return list(session.scalars(query))


def made_anew(registry: Registry, source: str) -> set[tuple[str, str]]:
    """Return ``(sink, topic)`` of each target that serves in its old shape until a run makes it anew."""
    return {
        (found.sink, found.topic)
        for found in standing(registry, source)
        if found.state == State.RESYNC_REQUIRED.value
        and found.sink
        and found.code not in (*REFRESHED, EMPTIED)
    }
