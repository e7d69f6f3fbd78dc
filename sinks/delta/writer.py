"""Apply changes to one table: find, judge, rewrite the files that are touched, commit.

A row is replaced by rewriting the file it is in; there are no deletion vectors, so that every Delta
reader can read the table. Changed rows are gathered in small files beside the large ones: what changed
lately is likely to change again, and then only small files are rewritten. Many small files become one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa

from headrace.model.change import Change
from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.outcome import Outcome
from sinks.delta.encode import encode
from sinks.delta.files import DataFile, conform, parts
from sinks.delta.index import Found, KeyIndex
from sinks.delta.judge import judge
from sinks.delta.merge import Kept, fill
from sinks.delta.replaced import Replaced
from sinks.delta.shape import Shape
from sinks.delta.table import Conflict, LakeTable
from sinks.delta.tombstones import Tombstones

__all__ = ["TableWriter"]

_Result = TypeVar("_Result")

_TRIES = 4
_FILE_ROWS = 65_536
_FILE_BYTES = 32 << 20
_MANY_SMALL = 8


@dataclass(slots=True)
class TableWriter:
    """The one writer of a table in this process; its methods may be called from any thread.

    Args:
        table: The table's files and commits.
        index: Keys of the files.
        tombstones: What is remembered of deleted rows.
        replaced: Files no longer part of the table, kept for a while.
        topics: Where changes of this table have come from.
    """

    table: LakeTable
    index: KeyIndex
    tombstones: Tombstones
    replaced: Replaced
    topics: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def apply(self, shape: Shape, changes: Sequence[Change]) -> list[Outcome]:
        """Apply changes, at most one per key; return their outcomes in order.

        Raises:
            SinkUnavailable: Other writers keep committing in between, or the disk refuses.
        """
        keys = [change.key.id for change in changes]
        with self.lock:
            self.topics.update({change.origin.topic for change in changes})
            return self._committed(lambda: self._apply(shape, changes, keys))

    def truncate(self, version: int) -> int:
        """Remove every row below ``version`` and remember it as deleted then; return how many."""
        with self.lock:
            return self._committed(lambda: self._truncate(version))

    def compact(self) -> None:
        """Make the small files one, forget old tombstones, delete files that no reader needs."""
        with self.lock:
            self._committed(self._compact)
            self.tombstones.purge()
            self.replaced.sweep(self.table.files)

    def _committed(self, attempt: Callable[[], _Result]) -> _Result:
        last: Exception | None = None
        for _ in range(_TRIES):
            try:
                self.table.refresh()
                return attempt()
            except (Conflict, FileNotFoundError) as error:
                # Someone compacted or vacuumed between our look and our commit: look again.
                last = error
            except pa.ArrowInvalid as error:
                raise SinkError(
                    f"A data file of {self.table.name} in the lake cannot be read.",
                    code="DELTA_FILE_UNREADABLE",
                    hint="Restore the file, or run a resnapshot of the table into this sink.",
                ) from error
            except OSError as error:
                raise SinkUnavailable(
                    f"The lake's file system refuses: {error.strerror or type(error).__name__}.",
                    code="DELTA_FILE_SYSTEM",
                    hint=f"Check free space and permissions of {self.table.path}.",
                ) from error
        raise SinkUnavailable(
            f"Other writers changed {self.table.name} in the lake during each of {_TRIES} attempts.",
            code="DELTA_CONFLICT",
            hint="Let OPTIMIZE and VACUUM of other tools run less often.",
        ) from last

    def _apply(self, shape: Shape, changes: Sequence[Change], keys: Sequence[str]) -> list[Outcome]:
        found = self.index.locate(self.table.path, self.table.files.values(), pa.array(keys, pa.string()))
        rows = np.zeros(len(changes), np.int64)
        for place in found:
            np.maximum.at(rows, place.sought, place.versions)
        verdict = judge(changes, rows, self.tombstones.versions(keys))

        written = np.flatnonzero(verdict.write)
        upserts = [changes[number] for number in written]
        fresh, rejected = encode(shape, upserts, [keys[number] for number in written])
        for number, why in rejected.items():
            verdict.reject(int(written[number]), why)
        if rejected:
            fitting = np.array([n for n in range(len(upserts)) if n not in rejected], np.int64)
            fresh, written = fresh.take(pa.array(fitting)), written[fitting]
            upserts = [upserts[number] for number in fitting]

        # Tombstones first: a crash in between leaves a row older than its tombstone, which the replayed
        # deletion removes; the other way round an older change could bring the row back.
        buried = np.flatnonzero(verdict.bury)
        self.tombstones.bury([keys[n] for n in buried], [changes[n].position.version for n in buried])

        partial = {int(written[n]): n for n, change in enumerate(upserts) if change.partial}
        touched = [place.only(verdict.remove[place.sought]) for place in found]
        touched = [place for place in touched if len(place.rows)]
        if len(fresh) or touched:
            self._rewrite(touched, conform(fresh, self.table.schema), shape, upserts, partial)
        return verdict.outcomes

    def _rewrite(
        self,
        touched: Sequence[Found],
        fresh: pa.Table,
        shape: Shape | None = None,
        upserts: Sequence[Change] = (),
        partial: dict[int, int] | None = None,
    ) -> None:
        """Commit the touched files without the rows found in them, and the fresh rows."""
        limit = self._file_rows(fresh)
        kept = Kept(partial or {})
        large: list[pa.Table] = []
        pool: list[pa.Table] = []
        for place in touched:
            for rest in self._rest(place, limit, kept):
                (large if len(rest) >= limit // 4 else pool).append(rest)
        if shape is not None and partial:
            fresh = fill(fresh, shape, upserts, kept)
        pool.append(fresh)
        old = [place.file for place in touched]
        if len(small := self._small(limit, old)) >= _MANY_SMALL:
            pool += [part for file in small for part in parts(self.table.path, file, self.table.schema, limit)]
            old += small
        pooled = pa.concat_tables(pool)
        new = large + [pooled.slice(start, limit) for start in range(0, len(pooled), limit)]
        self._replace(old, [table for table in new if len(table)])

    def _replace(self, old: Sequence[DataFile], new: Sequence[pa.Table]) -> None:
        files = self.table.replace(old, new)
        for file, table in zip(files, new, strict=True):
            self.index.add(self.table.path / file.path, table)
        for file in old:
            self.index.forget(self.table.path / file.path)
        self.replaced.add(old)
        self.replaced.remove_due()

    def _rest(self, place: Found, limit: int, kept: Kept) -> Iterable[pa.Table]:
        """Yield what stays of a file; note in ``kept`` the rows partial changes build on."""
        start = 0
        for part in parts(self.table.path, place.file, self.table.schema, limit):
            here = (place.rows >= start) & (place.rows < start + len(part))
            gone, sought = place.rows[here] - start, place.sought[here]
            kept.note(part, gone, sought)
            stays = np.ones(len(part), np.bool_)
            stays[gone] = False
            start += len(part)
            if len(gone) < len(part):
                yield part.filter(pa.array(stays)) if len(gone) else part

    def _truncate(self, version: int) -> int:
        touched, keys = [], []
        for file in self.table.files.values():
            rows, names = self.index.older(self.table.path, file, version)
            if len(rows):
                nothing = np.zeros(len(rows), np.int64)
                touched.append(Found(file, rows, nothing, nothing))
                keys += names.to_pylist()
        if touched:
            self.tombstones.bury(keys, [version] * len(keys))
            self._rewrite(touched, self.table.schema.empty_table())
        return len(keys)

    def _compact(self) -> None:
        small = self._small(_FILE_ROWS, [])
        if len(small) > 1:
            tables = [part for file in small for part in parts(self.table.path, file, self.table.schema, _FILE_ROWS)]
            pooled = pa.concat_tables(tables)
            limit = self._file_rows(pooled)
            self._replace(small, [pooled.slice(start, limit) for start in range(0, len(pooled), limit)])

    def _small(self, limit: int, but: Sequence[DataFile]) -> list[DataFile]:
        known = {file.path for file in but}
        return [f for f in self.table.files.values() if f.rows < limit // 4 and f.path not in known]

    @staticmethod
    def _file_rows(sample: pa.Table) -> int:
        """Return how many rows a file should have, judged by rows like those it will hold."""
        if not len(sample):
            return _FILE_ROWS
        return int(min(_FILE_ROWS, max(256, _FILE_BYTES * len(sample) // max(sample.nbytes, 1))))
