"""What requests did to a store, so that one that is restored from before them is brought forward again.

A replayed letter and a sweep write at positions that were settled long before: the progress of a store that
has lost them looks whole. So each leaves a mark in the store's progress, in a partition that no topic has,
and what it did is kept beside the checkpoint. A store with a lower mark than the newest has lost all since.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from headrace.config.pipeline import PipelineSpec, write_private
from headrace.model.errors import SinkError
from headrace.model.position import Position
from sinks.base import REQUESTS, Place, Progress, Sink
from spark_jobs.held import Holds, load_holds, nameless_row, save_holds
from spark_jobs.troubles import Troubles

__all__ = ["Requested"]

_MOST = 5_000
"""So many changes of a table are kept by name."""

_Rows = Mapping[str, Sequence[int]]
"""Row → versions of changes."""


@dataclass(slots=True)
class _Done:
    """What was done to one table.

    Args:
        mark: The newest.
        letters: Mark and what rows no longer lacked then.
        swept: Of the last sweep: its versions.
        swept_mark: Its mark.
        due: Whether the store has lost it.
    """

    mark: int = 0
    letters: list[tuple[int, _Rows]] = field(default_factory=list)
    swept: list[int] = field(default_factory=list)
    swept_mark: int = 0
    due: bool = False

    def next_mark(self) -> int:
        """Return a new mark: a checkpoint that was lost goes on above the marks that it has forgotten."""
        self.mark = max(self.mark + 1, int(time.time() * 1000))
        return self.mark


class Requested:
    """The marks of one sink; a small file beside the checkpoint.

    A look at the store comes before anything is noted: it moves what the store has lost to where it is not
    forgotten, so that a new mark in the store hides nothing.

    Args:
        spec: The sink's pipeline.
    """

    def __init__(self, spec: PipelineSpec) -> None:
        self._checkpoint = spec.checkpoint
        self._file = spec.checkpoint / "requested.json"
        self._tables = {table.topic: table.schema_ for table in spec.tables}
        # Of another target, or another life, nothing is remembered: it was filled from the beginning.
        self._keys = {table.topic: f"{table.life}.{table.target}" for table in spec.tables}
        self._lacking: dict[Place, int] = {}

    @property
    def places(self) -> list[Place]:
        """Where the store has the marks of the tables that were written to."""
        known = self._load()
        return [(topic, REQUESTS) for topic, key in self._keys.items() if key in known]

    def look(self, stored: Progress) -> bool:
        """Let rows be behind again which lack what the store has lost; return whether it has lost anything.

        Args:
            stored: What the store says of :attr:`places`.
        """
        known, holds = self._load(), Holds()
        self._lacking = {}
        for topic, schema in self._tables.items():
            done, place = known.get(self._keys[topic]), (topic, REQUESTS)
            if done is None or (has := stored.get(place, 0)) >= done.mark:
                continue
            self._lacking[place] = done.mark
            for mark, rows in done.letters:
                for row, versions in rows.items() if mark > has else ():
                    for version in versions:
                        holds.hold(str(schema.table), row, version)
            done.letters = [(mark, rows) for mark, rows in done.letters if mark <= has]
            done.due = done.due or done.swept_mark > has
        if self._lacking:
            holds.add(load_holds(self._checkpoint))
            save_holds(self._checkpoint, holds)
            self._save(known)
        return bool(self._lacking)

    def applied(self, before: Holds, after: Holds) -> Progress:
        """Note what rows no longer lack; return the marks to settle, before the rows are called whole."""
        known, marks = self._load(), {}
        held, left = before.settled().held, after.settled().held
        for topic, schema in self._tables.items():
            table = str(schema.table)
            still = left.get(table, {})
            gone = {
                row: kept
                for row, versions in held.get(table, {}).items()
                if (kept := [version for version in versions if version not in still.get(row, ())])
            }
            if gone:
                done = known.setdefault(self._keys[topic], _Done())
                marks[topic, REQUESTS] = done.next_mark()
                done.letters = _bounded([*done.letters, (done.mark, gone)])
        if marks:
            self._save(known)
        return marks

    def swept(self, topic: str, versions: Sequence[int]) -> Progress:
        """Note that a table was swept; return the mark that is to be settled."""
        known, table = self._load(), str(self._tables[topic].table)
        done = known.setdefault(self._keys[topic], _Done())
        done.swept, done.swept_mark = list(versions), done.next_mark()
        # Every row that was there then has a later record, which was whole.
        done.letters = [
            (mark, left) for mark, rows in done.letters if (left := _above(table, rows, versions))
        ]
        self._save(known)
        return {(topic, REQUESTS): done.mark}

    def again(self, sink: Sink, behind: Collection[str], troubles: Troubles) -> set[str]:
        """Sweep once more where the store has lost that; return the topics for which it is still to be done.

        Args:
            sink: The sink.
            behind: Topics that lack records, which would bring rows back: theirs is done later.
            troubles: Told which targets refuse.
        """
        known = self._load()
        left = {topic for topic, key in self._keys.items() if key in known and known[key].due}
        for topic in left.difference(behind):
            table = str(self._tables[topic].table)
            try:
                if troubles.due(table):
                    self._sweep(sink, topic)
                    troubles.passed(table)
                    left.remove(topic)
            except SinkError as error:
                if error.table is None:
                    raise
                troubles.refused(table, {**error.as_dict(), "retry": error.retry.value})
        whole = {p: mark for p, mark in self._lacking.items() if p[0] not in left and p[0] not in behind}
        if whole:
            sink.settle(whole)
        return left

    def _sweep(self, sink: Sink, topic: str) -> None:
        known, holds, schema = self._load(), load_holds(self._checkpoint), self._tables[topic]
        done = known[self._keys[topic]]
        sink.prepare(schema)  # of a table without records nobody else has missed the target
        for position in map(Position.from_version, done.swept):
            sink.truncate(schema, position)
            holds.empty(str(schema.table), position)
        save_holds(self._checkpoint, holds)
        done.swept_mark, done.due = done.next_mark(), False
        self._save(known)
        self._lacking[topic, REQUESTS] = done.mark

    def _load(self) -> dict[str, _Done]:
        try:
            stored = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        return {key: _Done(**told) for key, told in stored.items()}

    def _save(self, known: Mapping[str, _Done]) -> None:
        mine = {key: asdict(done) for key, done in known.items() if key in self._keys.values()}
        write_private(self._file, json.dumps(mine))


def _above(table: str, rows: _Rows, versions: Sequence[int]) -> _Rows:
    holds = Holds({table: {row: list(lacks) for row, lacks in rows.items()}})
    for version in versions:
        holds.empty(table, Position.from_version(version))
    return holds.settled().held.get(table, {})


def _bounded(letters: Sequence[tuple[int, _Rows]]) -> list[tuple[int, _Rows]]:
    """Keep the newest; of older ones no more than that a row lacked something, until the next sweep."""
    room = _MOST
    for number in reversed(range(len(letters))):
        mark, rows = letters[number]
        room -= sum(map(len, rows.values()))
        if room < 0:
            older = [
                version for _, each in letters[: number + 1] for lacks in each.values() for version in lacks
            ]
            newest = Position.from_version(max(older))
            unnamed = nameless_row(newest.partition, newest.offset)
            return [(mark, {unnamed: [newest.version]}), *letters[number + 1 :]]
    return list(letters)
