"""Requests of people to one sink's query, carried out between its batches, so that one writer stays one.

A request is a file; its answer is a file of the same name. One that was asked for twice does no harm.
"""

from __future__ import annotations

import fcntl
import json
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from headrace.config.pipeline import PipelineSpec, write_private
from headrace.config.request import BEGUN, WAITED_FOR, Request
from headrace.model.change import Ignored, Origin, Record
from headrace.model.errors import HeadraceError, Retry, SinkError, SinkUnavailable, named, naming
from headrace.model.key import Key
from headrace.model.letter import Letter, LetterId
from headrace.model.position import Position
from headrace.model.schema import TableSchema
from headrace.observe import pidfile
from sinks.base import Sink
from spark_jobs.apply import apply_records, sink_of
from spark_jobs.carry import NoCarry
from spark_jobs.decode import decoders
from spark_jobs.explain import explain
from spark_jobs.held import Holds, load_holds, save_holds
from spark_jobs.letters import read_letters
from spark_jobs.offsets import settled_last
from spark_jobs.ownership import Holding
from spark_jobs.report import Report
from spark_jobs.requested import Requested
from spark_jobs.rewind import lost

__all__ = ["Desk"]

_SLICE_BYTES = 64 << 20
"""So much of letters is held at a time, and some times as much while they are decoded."""


class Desk:
    """Carries out the requests to one sink.

    Args:
        spec: The sink's pipeline.
        requests: Folder in which requests to it appear.
        turn: Held by whoever of this process writes to the sink.
        holding: The process' place as the writer to the sink.
        done: Told how many rows of each table are behind after a request.
        goes_on: Tells whether the sink is to run, as of now; it may have been paused a moment ago.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        requests: Path,
        turn: threading.Lock,
        holding: Holding,
        done: Callable[[Report], None],
        goes_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self._spec = spec
        self._requests = requests
        self._turn = turn
        self._holding = holding
        self._done = done
        self._goes_on = goes_on
        self._requested = Requested(spec)
        self._at_work: threading.Thread | None = None
        self._over = threading.Event()

    def close(self) -> None:
        """Begin no more; what has been asked and not been begun is left to whoever comes after this one."""
        self._over.set()

    def tick(self) -> None:
        """Take up what was asked, beside whoever calls this; it waits for the sink's next free moment."""
        if self._at_work is not None and self._at_work.is_alive():
            return
        if any(self._requests.glob("*.json")):
            self._at_work = threading.Thread(target=self._work, name=f"desk-{self._spec.sink}", daemon=True)
            self._at_work.start()

    def _work(self) -> None:
        for path in sorted(self._requests.glob("*.json")):
            wanted = True
            try:
                request = Request.model_validate_json(path.read_bytes())
                wanted = bool(request.replay or request.sweep)
                with self._turn, naming(self._spec.source, self._spec.sink):
                    if self._over.is_set() or not self._goes_on():  # nothing is begun once it is paused
                        return
                    if wanted:  # before it is looked at: who goes after that is told that it is done
                        pidfile.write(path.with_suffix(BEGUN))
                    if not _is_waited_for(path):  # nothing may be done
                        for left in (path, *map(path.with_suffix, (WAITED_FOR, BEGUN))):
                            left.unlink(missing_ok=True)
                        continue
                    answer = self._answer(request)
            except Exception as error:  # noqa: BLE001 - whatever it is; a request that stays is tried for ever
                answer = {"error": self._told(error)}
            if wanted and path.exists():  # else nobody waits for it any more
                write_private(path.with_suffix(".answer"), json.dumps(answer))
            path.unlink(missing_ok=True)
            path.with_suffix(BEGUN).unlink(missing_ok=True)
        for path in self._requests.glob(f"*{WAITED_FOR}"):
            if not _is_locked(path):  # who waited was killed
                for left in (path, path.with_suffix(".answer")):
                    left.unlink(missing_ok=True)

    def _told(self, error: Exception) -> dict[str, Any]:
        told = explain(error)
        hint = named(told["hint"], source=self._spec.source, sink=self._spec.sink)
        table = error.table if isinstance(error, SinkError) else None
        later = isinstance(error, HeadraceError) and error.retry is Retry.LATER
        return {**told, "hint": hint, "later": later, "table": [table.schema, table.name] if table else None}

    def _said(self, table: str, error: Mapping[str, Any]) -> dict[str, Any]:
        hint = named(error["hint"], source=self._spec.source, sink=self._spec.sink)
        later = error.get("retry") == Retry.LATER.value
        return {"table": table, "later": later, **error, "hint": hint}

    def _answer(self, request: Request) -> dict[str, Any]:
        # First of all, for it may say that rows are behind.
        lacking = self._look(request) if request.replay or request.sweep else set()
        holds = load_holds(self._spec.checkpoint)
        report, waits = Report(holds=holds), list[Letter]()
        if request.replay:
            report, waits = self._replay(request, lacking, holds)
        swept = self._sweep(request, report.holds) if request.sweep else {}
        save_holds(self._spec.checkpoint, report.holds)
        self._done(report)
        return {
            "rejects": report.rejects,
            "tables": report.tables,
            "behind": report.holds.counts(),
            "swept": swept,
            "waits": [[one.id.topic, one.id.partition, one.id.offset] for one in waits],
            "troubles": [self._said(table, error) for table, error in report.troubles.items()],
        }

    def _look(self, request: Request) -> set[str]:
        """See whether the store is as it was left; return the topics of letters of which it lacks records."""
        sink, _ = sink_of(self._holding.pipeline())
        topics = {place[0] for places in request.replay.values() for place in places}
        _, ended = settled_last(self._spec.checkpoint)
        settled = {place: end for place, end in ended.items() if place[0] in topics}
        stored = sink.progress([*settled, *self._requested.places])
        self._requested.look(stored)
        return {topic for topic, _ in lost(stored, settled)}

    def _sweep(self, request: Request, holds: Holds) -> dict[str, dict[str, Any]]:
        """Remove what a run has shown to be gone; return per table how many rows there were and went."""
        sink, tables = sink_of(self._holding.pipeline())
        schemas = {str(schema.table): schema for schema in tables.schemas.values()}
        topics = {str(table): topic for topic, (table, _) in tables.topics.items()}
        told = {}
        for table, versions in request.sweep.items():
            schema, marks = schemas[table], [Position.from_version(version) for version in versions]
            older, removed = [sink.count(schema, mark) for mark in marks], 0
            total = sink.count(schema)
            stored = sink.progress([(topics[table], partition) for partition in range(len(marks))])
            settled = [stored.get((topics[table], n), -1) + 1 for n in range(len(marks))]
            rows, share = request.sweep_limit or (sum(older), 1.0)
            kept = _kept(sink, schema, holds, marks) if any(older) else 0
            allowed = not kept and sum(older) <= max(rows, share * total)
            if allowed:
                # Before it is done, and also where nothing is left to do: a backup may hold what is gone.
                swept = self._requested.swept(topics[table], versions)
                removed = sum(sink.truncate(schema, m) for m, old in zip(marks, older, strict=True) if old)
                if removed < sum(older):
                    _refuse_left(sink, schema, marks)
                sink.settle(swept)
                for mark in marks:
                    holds.empty(table, mark)
            told[table] = {
                "older": sum(older),
                "total": total,
                "removed": removed,
                "refused": not allowed,
                "settled": settled,
                "kept": kept,
            }
        return told

    def _replay(
        self, request: Request, lacking: Collection[str], holds: Holds
    ) -> tuple[Report, list[Letter]]:
        """Apply letters; return what has become of them, and those that wait on with a table in trouble."""
        sink, tables = sink_of(self._holding.pipeline())
        topics = {str(table): topic for topic, (table, _) in tables.topics.items()}
        report, put_off, waits = Report(holds=holds), list[dict[str, Any]](), list[Letter]()
        for letters in self._slices(request):
            in_trouble = {topics[table] for table in report.troubles}
            put_off += [_put_off(letter) for letter in letters if letter.id.topic in lacking]
            waits += [letter for letter in letters if letter.id.topic in in_trouble - {*lacking}]
            now = [letter for letter in letters if letter.id.topic not in in_trouble | {*lacking}]
            before = holds.settled()
            part = apply_records(_again(now, self._spec, holds), sink, tables, NoCarry(), holds)
            if part.error is not None:
                self._holding.give_up()
                raise HeadraceError(part.error["message"], code=part.error["code"], hint=part.error["hint"])
            troubled = {table: topics[table] for table in part.troubles}
            part.leave_out(troubled, before)
            waits += [letter for letter in now if letter.id.topic in troubled.values()]
            report.add(part)
        # Before it is forgotten that the rows were behind.
        if marks := self._requested.applied(load_holds(self._spec.checkpoint), report.holds):
            sink.settle(marks)
        report.rejects += put_off
        return report, waits

    def _slices(self, request: Request) -> Iterator[list[Letter]]:
        """Yield the letters in their order, a bounded number of bytes at a time; at least one letter."""
        wanted = {name: {LetterId(*place) for place in places} for name, places in request.replay.items()}
        sizes = sorted((letter.id, name, _size(letter)) for name, letter in self._letters(wanted))
        while sizes:
            ends = [*accumulate(size for _, _, size in sizes)]
            count = max(1, bisect_right(ends, _SLICE_BYTES))
            chosen: dict[str, set[LetterId]] = {}
            for place, name, _ in sizes[:count]:
                chosen.setdefault(name, set()).add(place)
            yield sorted((letter for _, letter in self._letters(chosen)), key=lambda letter: letter.id)
            sizes = sizes[count:]

    def _letters(self, wanted: Mapping[str, Collection[LetterId]]) -> Iterator[tuple[str, Letter]]:
        for name, places in wanted.items():
            for letter in read_letters(self._spec.dead_letters / Path(name).name):
                if letter.id in places:
                    yield name, letter


def _is_waited_for(path: Path) -> bool:
    """Return whether somebody waits for the answer to a request; who was killed has left it behind."""
    waits = path.with_suffix(WAITED_FOR)
    # One without asks for no answer, or is of an older version.
    return path.exists() and (not waits.exists() or _is_locked(waits))


def _is_locked(path: Path) -> bool:
    try:
        with path.open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _kept(sink: Sink, schema: TableSchema, holds: Holds, marks: Sequence[Position]) -> int:
    """Return how many rows would go whose newer change the store has refused: they are not gone."""
    table = str(schema.table)
    behind = [Key.of_id(row) for row in holds.held.get(table, ()) if holds.missing(table, row)]
    mine = [key for key in behind if len(key.parts) == len(schema.key)]
    stored = sink.rows(schema, mine) if mine else {}
    return sum(any(_is_older(row.version, mark) for mark in marks) for row in stored.values())


def _is_older(version: int, mark: Position) -> bool:
    """Return whether a row is of the mark's partition and older."""
    return mark.floor <= version < mark.version


def _refuse_left(sink: Sink, schema: TableSchema, marks: Sequence[Position]) -> None:
    """Let a sweep fail that has left rows; some may have gone by themselves meanwhile.

    Raises:
        SinkUnavailable: ``SWEEP_INCOMPLETE``.
    """
    left = sum(sink.count(schema, mark) for mark in marks)
    if left:
        raise SinkUnavailable(
            f"A sweep of {schema.table} was to remove {left:,} rows that are still there.",
            code="SWEEP_INCOMPLETE",
            hint="Somebody else may write to the target. Each resnapshot sweeps it again.",
            table=schema.table,
        )


def _size(letter: Letter) -> int:
    return len(letter.key or b"") + len(letter.value or b"")


def _put_off(letter: Letter) -> dict[str, Any]:
    """Return why a letter waits on: a row that is newer takes nothing of a record that is still to come."""
    reason = "The store lacks records of the table, which come before it: replay it when it has them."
    return {**_place(letter), "code": "STORE_WENT_BACK", "reason": reason}


def _place(letter: Letter) -> dict[str, Any]:
    return {"topic": letter.id.topic, "partition": letter.id.partition, "offset": letter.id.offset}


def _again(letters: list[Letter], spec: PipelineSpec, holds: Holds) -> Iterator[Record]:
    """Decode letters as the query would decode them today, at the position they had.

    Those whose row does not lack them any more are passed over: after a truncate, say, nothing in the store
    would tell that they are old.
    """
    by_topic = decoders(spec.model_dump_json())
    epochs = {table.topic: table.epoch for table in spec.tables}
    for letter in letters:
        place = letter.id
        origin = Origin(place.topic, place.partition, place.offset)
        version = Position(place.epoch, place.offset, place.partition).version
        if epochs.get(place.topic) != place.epoch:
            yield Ignored(origin, "its topic is not this one any more")
        elif letter.row is not None and version not in holds.missing(letter.table, letter.row):
            yield Ignored(origin, "superseded")
        else:
            yield by_topic[place.topic].decode_raw(origin, letter.key, letter.value)
