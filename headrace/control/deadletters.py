"""The dead letter queue: rejected records found, listed, applied again or given up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, or_, select, update
from sqlalchemy.orm import Session

from headrace.config.request import Request
from headrace.control.context import Context
from headrace.control.desk import ask
from headrace.control.registry import DeadLetterEntry, DeadLetterFile, Registry, now_ms
from headrace.control.remedies import read_anew
from headrace.control.rest import resting
from headrace.model.errors import SinkError, SinkUnavailable, UsageError
from headrace.model.letter import Letter, LetterId
from headrace.model.pasted import command
from headrace.model.position import Position
from spark_jobs.held import load_holds, nameless_row
from spark_jobs.letters import read_letters

__all__ = ["Chosen", "LetterState", "Replayed", "discard", "forget", "letter", "letters", "replay", "way_out"]

_AT_ONCE = 1_000
_NAMELESS_WITHIN_MS = 12 * 3_600_000

_COLUMN = re.compile("column “([^”]+)”")
_UNHELD = re.compile("DELTA_VALUE_(DATE|TIMESTAMP|TIMESTAMPTZ|NUMERIC)")  # only of these a policy lets one in


class LetterState(str, Enum):
    """What has become of a rejected record.

    A superseded one needs nothing: a newer change has made its row whole again.
    """

    WAITING = "waiting"
    SUPERSEDED = "superseded"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


def way_out(entry: DeadLetterEntry) -> str:
    """Return the commands that have a waiting letter applied; empty where its code does not tell them.

    Of a value that the store cannot hold: another policy, and the letters once more.
    """
    column = _COLUMN.search(entry.reason) if _UNHELD.fullmatch(entry.code) else None
    if column is None or entry.state != LetterState.WAITING.value:
        return ""
    policy = f"unheld.{entry.table}.{column[1]}=nearest"
    first = ["headrace", "sink", "set", entry.sink, policy]
    then = ["headrace", "dlq", "replay", "--sink", entry.sink, "--code", entry.code]
    return f"{command(*first)} && {command(*then)}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which letters are meant; every condition that is given has to hold.

    Args:
        numbers: Their numbers in the list.
        sink, table, code: What they belong to and why they were rejected.
        state: What has become of them.
    """

    numbers: Sequence[int] = ()
    sink: str | None = None
    table: str | None = None
    code: str | None = None
    state: LetterState | None = LetterState.WAITING


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a replay.

    Args:
        letters: How many records were applied again, those of the same rows included.
        done: How many of them the sink has taken now, or no longer needs.
        refused: Why the others were rejected again → how many.
    """

    letters: int
    done: int
    refused: dict[str, int]


def letters(context: Context, chosen: Chosen) -> list[DeadLetterEntry]:
    """Return the chosen letters, oldest first, after a look at what was set aside since the last."""
    registry = Registry(context.registry)
    with registry.begin() as session:
        _index(context, session)
        _follow_holds(context, session)
        return list(
            session.scalars(
                select(DeadLetterEntry)
                .where(*_conditions(chosen))
                .order_by(DeadLetterEntry.at_ms, DeadLetterEntry.number)
            )
        )


def refuse_unknown(context: Context, numbers: Sequence[int]) -> None:
    """Refuse numbers that no letter has, whatever has become of it.

    Raises:
        UsageError: With code ``LETTER_UNKNOWN``.
    """
    found = (
        {entry.number for entry in letters(context, Chosen(tuple(numbers), state=None))} if numbers else ()
    )
    if unknown := [str(number) for number in dict.fromkeys(numbers) if number not in found]:
        raise UsageError(
            f"There is no letter {', '.join(unknown)}.",
            code="LETTER_UNKNOWN",
            hint="headrace dlq list --state all",
        )


def letter(context: Context, number: int) -> tuple[DeadLetterEntry, Letter]:
    """Return one letter: what is known of it, and the record itself.

    Raises:
        UsageError: When there is none of that number (``LETTER_UNKNOWN``), or its file is gone
            (``LETTER_GONE``).
    """
    refuse_unknown(context, (number,))
    entry = letters(context, Chosen(numbers=(number,), state=None))[0]
    file = _file(context, entry)
    if file.exists():
        for one in read_letters(file):
            if one.id == _id(entry):
                return entry, one
    registry = Registry(context.registry)
    source = registry.source(registry.sink(entry.sink).source)
    tables = [table.schema for table in source.tables if str(table.schema.table) == entry.table]
    raise UsageError(
        f"The file {entry.file}, which held letter {number}, is gone.",
        code="LETTER_GONE",
        hint=read_anew(source, tables),
    )


def replay(
    context: Context, chosen: Chosen, *, told: Callable[[int, int], None] = lambda _done, _of: None
) -> Replayed:
    """Have the sinks apply letters again, at the position they had: newer data is never overwritten.

    All waiting letters of a chosen letter's row go with it, in their order, for a later one may need what
    an earlier one carries.

    Args:
        context: The installation.
        chosen: Which letters.
        told: Told how many of how many are done.

    Raises:
        SinkError: When a sink's query cannot be asked, or a table's target is in trouble; letters of all
            others have been applied again.
    """
    everything = letters(context, Chosen(state=chosen.state))
    meant = {entry.number for entry in letters(context, chosen)}
    rows = {_row(entry) for entry in everything if entry.number in meant}
    why = {entry.number: _unusable(context, entry) for entry in everything if _row(entry) in rows}
    selected = [entry for entry in everything if why.get(entry.number) == ""]
    refused: Counter[str] = Counter(filter(None, why.values()))
    done = tried = 0
    unasked: list[SinkError] = []
    for sink in sorted({entry.sink for entry in selected}):
        try:
            for part in _parts([entry for entry in selected if entry.sink == sink]):
                said = _ask_again(context, sink, part)
                waits = {tuple(place) for place in said.get("waits", ())}
                taken = [one for one in part if (one.topic, one.partition, one.offset) not in waits]
                rejected = _rejected(said)
                _settle(context, taken, rejected)
                unasked += _troubles(said)
                tried += len(part)
                done += len(taken) - len(rejected)
                refused.update(code for code, _ in rejected.values())
                told(tried, len(selected))
        except SinkError as error:  # another sink's letters do not wait for it
            unasked.append(error)
    Registry(context.registry).note("dead letters", "replayed", letters=tried, done=done)
    if unasked:
        raise unasked[0]
    return Replayed(tried, done, {code: count for code, count in refused.items() if count})


def discard(context: Context, chosen: Chosen) -> int:
    """Give letters up; return how many.

    Their rows stay behind until a newer change or a resnapshot. A record without a key may have been a
    change of any row: its table stays behind until a resnapshot.
    """
    selected = letters(context, chosen)
    with Registry(context.registry).begin() as session:
        for entry in selected:
            _decide(session, entry.number, LetterState.DISCARDED)
    Registry(context.registry).note("dead letters", "discarded", letters=len(selected))
    return len(selected)


def forget(context: Context, sink: str) -> None:
    """Forget the letters of a sink that is removed with its data."""
    with Registry(context.registry).begin() as session:
        session.execute(delete(DeadLetterEntry).where(DeadLetterEntry.sink == sink))
        session.execute(delete(DeadLetterFile).where(DeadLetterFile.sink == sink))


def _index(context: Context, session: Session) -> None:
    """Take in files that are new or were written again."""
    stamps = {(file.sink, file.name): file.stamp for file in session.scalars(select(DeadLetterFile))}
    found = {path: path.stat().st_mtime_ns for path in sorted(context.dead_letters.glob("*/*.avro"))}
    fresh = [path for path, stamp in found.items() if stamps.get((path.parent.name, path.name)) != stamp]
    known: dict[str, set[LetterId]] = {}
    for path in fresh:
        sink = path.parent.name
        session.execute(
            delete(DeadLetterEntry).where(
                DeadLetterEntry.sink == sink,
                DeadLetterEntry.file == path.name,
                DeadLetterEntry.state == LetterState.WAITING.value,
            )
        )
    for path in fresh:
        sink = path.parent.name
        if sink not in known:
            known[sink] = _ids(session, sink)
        ids = known[sink]
        new = [one for one in read_letters(path) if one.id not in ids]
        ids.update(one.id for one in new)
        session.add_all(_entry(one, path) for one in new)
        session.merge(DeadLetterFile(sink=sink, name=path.name, stamp=found[path]))


def _ids(session: Session, sink: str) -> set[LetterId]:
    places = select(
        DeadLetterEntry.topic, DeadLetterEntry.epoch, DeadLetterEntry.partition, DeadLetterEntry.offset
    )
    return {LetterId(*place) for place in session.execute(places.where(DeadLetterEntry.sink == sink))}


def _entry(found: Letter, path: Path) -> DeadLetterEntry:
    return DeadLetterEntry(
        sink=path.parent.name,
        topic=found.id.topic,
        epoch=found.id.epoch,
        partition=found.id.partition,
        offset=found.id.offset,
        table=found.table,
        row=found.row,
        code=found.code,
        reason=found.reason,
        at_ms=found.at_ms,
        file=path.name,
        state=LetterState.WAITING.value,
        decided_ms=None,
    )


def _follow_holds(context: Context, session: Session) -> None:
    """Mark as superseded what no row lacks any more; and as waiting what one lacks again.

    A change that was made good is rejected once more when a store that was lost is filled again.
    """
    waiting, superseded = LetterState.WAITING.value, LetterState.SUPERSEDED.value
    good = (superseded, LetterState.REPLAYED.value)
    sinks = select(DeadLetterEntry.sink).where(DeadLetterEntry.state.in_((waiting, *good))).distinct()
    for sink in list(session.scalars(sinks)):
        held = load_holds(context.checkpoints / sink).held
        # What was made good is looked at in tables only of which rows lack something: it may be much.
        again = and_(DeadLetterEntry.state.in_(good), DeadLetterEntry.table.in_(held))
        meant = or_(DeadLetterEntry.state == waiting, again)
        for entry in session.scalars(select(DeadLetterEntry).where(DeadLetterEntry.sink == sink, meant)):
            version = Position(entry.epoch, entry.offset, entry.partition).version
            row = nameless_row(entry.partition, entry.offset) if entry.row is None else entry.row
            lacking = version in held.get(entry.table, {}).get(row, ())
            if lacking and entry.state != waiting:
                entry.state, entry.decided_ms = waiting, None
            elif not lacking and entry.state == waiting:
                entry.state, entry.decided_ms = superseded, now_ms()


def _conditions(chosen: Chosen) -> Iterator[ColumnElement[bool]]:
    if chosen.numbers:
        # SQLite knows no larger number, and gives none.
        yield DeadLetterEntry.number.in_([number for number in chosen.numbers if abs(number) < 2**63])
    for column, value in (
        (DeadLetterEntry.sink, chosen.sink),
        (DeadLetterEntry.table, chosen.table),
        (DeadLetterEntry.code, chosen.code),
        (DeadLetterEntry.state, chosen.state.value if chosen.state else None),
    ):
        if value is not None:
            yield column == value


def _row(entry: DeadLetterEntry) -> tuple[str, str, str]:
    return entry.sink, entry.table, entry.row or nameless_row(entry.partition, entry.offset)


def _id(entry: DeadLetterEntry) -> LetterId:
    return LetterId(entry.topic, entry.epoch, entry.partition, entry.offset)


def _file(context: Context, entry: DeadLetterEntry) -> Path:
    return context.dead_letters / entry.sink / entry.file


def _unusable(context: Context, entry: DeadLetterEntry) -> str:
    """Return why a letter cannot be applied again; empty when it can.

    A store may have forgotten a later delete of a row that nobody could name.
    """
    if entry.row is None and now_ms() - entry.at_ms > _NAMELESS_WITHIN_MS:
        return "LETTER_TOO_OLD"
    return "" if _file(context, entry).exists() else "LETTER_GONE"


def _parts(entries: Iterable[DeadLetterEntry]) -> Iterator[list[DeadLetterEntry]]:
    """Yield portions to apply at once; the letters of one row stay together."""
    part: list[DeadLetterEntry] = []
    for entry in sorted(entries, key=lambda entry: (_row(entry), _id(entry))):
        if len(part) >= _AT_ONCE and _row(entry) != _row(part[-1]):
            yield part
            part = []
        part.append(entry)
    if part:
        yield part


def _refuse_paused(context: Context, sink: str) -> None:
    if resting(context, sink) == "paused":
        raise SinkError(
            f"Sink {sink} is paused: it applies no letters.",
            code="SINK_AT_REST",
            hint=f"headrace sink resume {sink}",
        )


def _ask_again(context: Context, sink: str, part: Sequence[DeadLetterEntry]) -> dict[str, Any]:
    """Return what the sink's query says of letters that it was asked to apply again."""
    _refuse_paused(context, sink)
    files: dict[str, list[tuple[str, int, int, int]]] = {}
    for entry in part:
        files.setdefault(entry.file, []).append((entry.topic, entry.epoch, entry.partition, entry.offset))
    return ask(context, sink, Request(replay=files), heed=lambda: _refuse_paused(context, sink))


def _troubles(said: Mapping[str, Any]) -> list[SinkError]:
    kinds = {True: SinkUnavailable, False: SinkError}
    told = said.get("troubles", ())
    return [kinds[one["later"]](one["message"], code=one["code"], hint=one["hint"]) for one in told]


def _rejected(said: Mapping[str, Any]) -> dict[tuple[str, int, int], tuple[str, str]]:
    """Return place → code and reason of letters that are rejected again."""
    return {
        (reject["topic"], reject["partition"], reject["offset"]): (reject["code"], reject["reason"])
        for reject in said["rejects"]
    }


def _settle(
    context: Context,
    part: Sequence[DeadLetterEntry],
    rejected: dict[tuple[str, int, int], tuple[str, str]],
) -> None:
    with Registry(context.registry).begin() as session:
        for entry in part:
            again = rejected.get((entry.topic, entry.partition, entry.offset))
            if again is None:
                _decide(session, entry.number, LetterState.REPLAYED)
            else:
                code, reason = again
                session.execute(
                    update(DeadLetterEntry)
                    .where(DeadLetterEntry.number == entry.number)
                    .values(code=code, reason=reason, state=LetterState.WAITING.value, decided_ms=None)
                )


def _decide(session: Session, number: int, state: LetterState) -> None:
    session.execute(
        update(DeadLetterEntry)
        .where(DeadLetterEntry.number == number)
        .values(state=state.value, decided_ms=now_ms())
    )
