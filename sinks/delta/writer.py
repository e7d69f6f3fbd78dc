"""Apply changes to one table: find, judge, rewrite the files that are touched, commit.

A row is replaced by rewriting the file it is in, so that every Delta reader can read the table; or, when
asked for, by hiding it with a deletion vector. Changed rows are gathered in small files beside the large
ones: what changed lately is likely to change again, and then only small files are rewritten. Many small
files become one.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa

from headrace.model.change import Change
from headrace.model.errors import SinkError
from headrace.model.outcome import Outcome
from sinks.delta.beside import beside
from sinks.delta.draft import Draft
from sinks.delta.encode import encode
from sinks.delta.files import DataFile, conform, fit_together, live_parts, parts, within, without
from sinks.delta.index import Found, KeyIndex
from sinks.delta.judge import Verdict, judge, numbers
from sinks.delta.keys import key_ids
from sinks.delta.log import Conflict, Offsets
from sinks.delta.merge import Kept, fill
from sinks.delta.shape import Shape
from sinks.delta.table import LakeTable
from sinks.delta.tombstones import Tombstones
from sinks.delta.trouble import READING, conflict, file_missing, named, put_back
from sinks.delta.vacuum import Vacuum

__all__ = ["TableWriter"]

_log = logging.getLogger("headrace")

_Result = TypeVar("_Result")

_TRIES = 4
_MANY_TINY = 8
_MANY_SMALL = 32
_SEVERAL_SMALL = 4
_MANY_HIDDEN = 0.1
_MOST_HIDDEN = 0.25
_BURIED_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class _Batch:
    """Changes that are being applied.

    Args:
        changes: At most one per key.
        keys: The id of each one's key.
        versions: The version of each.
        found: Where the table has rows of these keys.
    """

    changes: Sequence[Change]
    keys: pa.Array
    versions: np.ndarray
    found: Sequence[Found]


@dataclass(slots=True)
class TableWriter:
    """The one writer of a table in this process; its methods may be called from any thread.

    Args:
        table: The table's files and commits.
        index: Keys of the files.
        tombstones: What is remembered of deleted rows.
        vacuum: Removes the files that no version within the table's retention needs.
        vectors: Whether rows of large files are hidden by deletion vectors instead of rewriting the file.
        topics: Where changes of this table have come from.
        tidied: When it was tidied last, by the monotonic clock.
        settled: Tells what is settled of the topics whose changes are in this table.
    """

    table: LakeTable
    index: KeyIndex
    tombstones: Tombstones
    vacuum: Vacuum
    vectors: bool = False
    topics: set[str] = field(default_factory=set)
    tidied: float = 0.0
    settled: Callable[[], Offsets] = dict
    lock: threading.RLock = field(default_factory=threading.RLock)
    _written: bool = False

    def apply(self, shape: Shape, changes: Sequence[Change]) -> list[Outcome]:
        """Apply changes, at most one per key; return their outcomes in order.

        Raises:
            SinkUnavailable: Other writers keep committing in between, or the disk refuses.
        """
        keys = key_ids([change.key.parts for change in changes])
        versions: np.ndarray = np.array([change.position.version for change in changes], np.int64)
        with self.lock:
            self.topics.update({change.origin.topic for change in changes})
            return self._committed(lambda: self._apply(shape, changes, keys, versions))

    def stored(self, keys: Sequence[str]) -> pa.Table:
        """Return the rows of those keys that the table holds."""
        with self.lock:
            return self._committed(lambda: self._stored(pa.array(keys, pa.string())))

    def truncate(self, floor: int, version: int) -> int:
        """Remove every row from ``floor`` to below ``version``, noted as deleted then; return how many."""
        with self.lock:
            return self._committed(lambda: self._truncate(floor, version))

    def count(self, floor: int = 0, version: int | None = None) -> int:
        """Return how many rows there are from ``floor`` to below ``version``; of all versions when None."""
        with self.lock:
            return self._committed(lambda: self._count(floor, version))

    def tidy(self, until: float) -> bool:
        """Do what waits for an idle moment, a little at a time; return whether to go on.

        Small files become one, rows hidden in files go, old tombstones are forgotten, and files that no
        reader needs are deleted. One call joins no more rows than make one file, and begins with no further
        file once the monotonic clock is past ``until``. While another thread is at work it does nothing.
        """
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self.tidied = time.monotonic()
            more = self._committed(lambda: self._tidy(until))
            self._committed(self.tombstones.purge)
            self._vacuum()
            return more
        finally:
            self.lock.release()

    def _committed(self, attempt: Callable[[], _Result]) -> _Result:
        last: Exception | None = None
        for _ in range(_TRIES):
            try:
                self.table.refresh()
                if self.table.went_back:
                    raise put_back(self.table.path)
                return attempt()
            except (Conflict, FileNotFoundError) as error:
                # Someone compacted or vacuumed between our look and our commit: look again.
                last = error
            except (*READING, pa.ArrowException, sqlite3.Error, OSError) as error:
                raise named(error, self.table.path, self.table.name) from error
        if isinstance(last, FileNotFoundError):
            raise file_missing(self.table.path, self.table.name) from last
        raise conflict(self.table.name) from last

    def _draft(self, *, changes_data: bool = True) -> Draft:
        return Draft(self.table, self.index, self.settled(), changes_data)

    def _commit(self, draft: Draft) -> None:
        self.vacuum.note(draft.commit())

    def _vacuum(self) -> None:
        """Remove files that nobody needs, once in a while; what fails is done the next time."""
        table = self.table
        if self.vacuum.due(table.retention):
            try:
                self.vacuum.run(table.delta, table.files.values(), table.retention)
            except (*READING, SinkError, OSError) as error:
                _log.warning("old files of %s were not removed: %s", table.name, type(error).__name__)

    def _apply(
        self, shape: Shape, changes: Sequence[Change], keys: pa.Array, versions: np.ndarray
    ) -> list[Outcome]:
        if not self._written:
            self.table.refuse_rows_before_ours()
            self._written = True
        self.table.add_columns(shape.arrow)
        found = self._find(keys)
        rows: np.ndarray = np.zeros(len(changes), np.int64)
        for place in found:
            np.maximum.at(rows, place.sought, place.versions)
        verdict = judge(changes, versions, rows, self.tombstones.versions(keys))

        # Tombstones first: a crash in between leaves a row older than its tombstone, which the replayed
        # deletion removes; the other way round an older change could bring the row back.
        gone = verdict.bury
        burial = (
            beside(self.tombstones.bury, keys.filter(pa.array(gone)).to_pylist(), versions[gone].tolist())
            if gone.any()
            else None
        )
        with self._draft() as draft:
            try:
                self._compose(draft, shape, _Batch(changes, keys, versions, found), verdict)
            finally:
                if burial is not None:
                    burial.result()
            self._commit(draft)
        self._vacuum()
        return verdict.outcomes

    def _compose(self, draft: Draft, shape: Shape, batch: _Batch, verdict: Verdict) -> None:
        """Let a draft do what was decided; where small files have become many, they become one."""
        fresh = self._encoded(shape, batch, verdict)
        written = np.flatnonzero(verdict.write)
        touched = [place.only(verdict.remove[place.sought]) for place in batch.found]
        touched = [place for place in touched if len(place.rows)]
        kept = Kept({int(written[n]): n for n in numbers(verdict.partial[written])})
        for place in touched:
            self._take_out(place, draft, kept)
        if kept.partial:
            fresh = fill(fresh, shape, [batch.changes[n] for n in written.tolist()], kept)
        if len(fresh) or touched:
            self._join(draft, self._crowd([place.file for place in touched]))
        draft.add(fresh)

    def _encoded(self, shape: Shape, batch: _Batch, verdict: Verdict) -> pa.Table:
        """Return the rows to write; changes with values that do not fit are rejected."""
        written = np.flatnonzero(verdict.write)
        changes, keys, versions = batch.changes, batch.keys, batch.versions
        if len(written) < len(changes):
            changes = [changes[number] for number in written.tolist()]
            keys, versions = keys.take(pa.array(written)), versions[written]
        rows, rejected = encode(shape, changes, keys, versions)
        for number, why in rejected.items():
            verdict.reject(int(written[number]), why)
        if rejected:
            rows = rows.filter(pa.array(verdict.write[written]))
        return conform(rows, self.table.schema)

    def _take_out(self, place: Found, draft: Draft, kept: Kept) -> None:
        """Take the rows found in a file out of the table; note those that partial changes build on."""
        file = place.file
        gone = place.rows if file.deleted is None else np.union1d(file.deleted, place.rows)
        hide = self.vectors and not file.small and len(gone) <= file.rows * _MOST_HIDDEN
        if hide:
            draft.hide(file, gone)
        else:
            draft.remove([file])
        if not kept.partial and (hide or len(gone) == file.rows):
            return  # nobody asks for what is in it
        for start, part in parts(self.table.path, file, self.table.schema):
            here = (place.rows >= start) & (place.rows < start + len(part))
            kept.note(part, place.rows[here] - start, place.sought[here])
            if not hide:
                draft.add(without(part, within(gone, start, len(part))))

    def _crowd(self, touched: Sequence[DataFile]) -> Sequence[DataFile]:
        """Return which small files, beside those touched, have to be joined lest they become ever more."""
        known = {file.path for file in touched}
        few = [file for file in self.table.files.values() if file.small and file.path not in known]
        tiny = [file for file in few if file.tiny]
        if len(few) >= _MANY_SMALL:
            return few
        return tiny if len(tiny) >= _MANY_TINY else []

    def _join(self, draft: Draft, files: Sequence[DataFile]) -> None:
        for file in files:
            for part in live_parts(self.table.path, file, self.table.schema):
                draft.add(part)
        draft.remove(files)

    def _find(self, keys: pa.Array) -> list[Found]:
        return self.index.locate(self.table.path, self.table.files.values(), keys)

    def _stored(self, keys: pa.Array) -> pa.Table:
        taken = [self.table.schema.empty_table()]
        for place in self._find(keys):
            for start, part in parts(self.table.path, place.file, self.table.schema):
                taken.append(part.take(pa.array(within(place.rows, start, len(part)))))
        return pa.concat_tables(taken)

    def _truncate(self, floor: int, version: int) -> int:
        removed, touched = 0, []
        with self._draft() as draft:
            # A file at a time: a table may have more keys than there is room for.
            for file in list(self.table.files.values()):
                rows, keys = self.index.older(self.table.path, file, floor, version)
                if len(rows):
                    for start in range(0, len(keys), _BURIED_AT_ONCE):
                        names = keys.slice(start, _BURIED_AT_ONCE).to_pylist()
                        self.tombstones.bury(names, [version] * len(names))
                    nobody = np.broadcast_to(np.int64(0), rows.shape)
                    self._take_out(Found(file, rows, nobody, nobody), draft, Kept({}))
                    removed += len(rows)
                    touched.append(file)
            if touched:
                self._join(draft, self._crowd(touched))
                self._commit(draft)
        if touched:
            self._vacuum()
        return removed

    def _count(self, floor: int, version: int | None) -> int:
        if version is None:
            return self.table.rows
        files = self.table.files.values()
        return sum(len(self.index.older(self.table.path, file, floor, version)[0]) for file in files)

    def _tidy(self, until: float) -> bool:
        files = self._untidy()
        if not files:
            return False
        count = next((n for n in range(1, len(files)) if not fit_together(files[: n + 1])), len(files))
        try:
            with self._draft(changes_data=False) as draft:
                for number, file in enumerate(files[:count]):
                    if number > 1 and time.monotonic() > until:
                        break
                    self._join(draft, [file])
                self._commit(draft)
        except (Conflict, FileNotFoundError):
            return False  # another writer tidies, too
        self.table.make_durable()
        return bool(self._untidy())

    def _untidy(self) -> list[DataFile]:
        """Return the files to join next: those with the most hidden rows, else the smallest."""
        files = self.table.files.values()
        if hidden := [file for file in files if file.rows - file.live > file.rows * _MANY_HIDDEN]:
            return sorted(hidden, key=lambda file: file.live)
        few = [file for file in files if file.small]
        return sorted(few, key=lambda file: file.live) if len(few) >= _SEVERAL_SMALL else []
