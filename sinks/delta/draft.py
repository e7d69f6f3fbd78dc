"""A change of a table in the making: files are written first, then named by one commit or removed."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.observe.disk import sync
from headrace.observe.failpoints import hit
from sinks.delta.beside import beside
from sinks.delta.files import DataFile, new_name, pieces, small, statistics, write
from sinks.delta.index import KeyIndex
from sinks.delta.log import Conflict, Offsets
from sinks.delta.table import LakeTable
from sinks.delta.vectors import write_vectors

__all__ = ["Draft"]


@dataclass(slots=True)
class Draft:
    """What one commit will do; leaving the ``with`` block without a commit leaves nothing behind.

    Only the rows of two files are in memory at a time, however many files the change touches: those of
    the file being written, and those being gathered for the next.

    Args:
        table: The table to change.
        index: Told the keys of each new file.
        settled: What is settled of the table's topics; the commit says so.
        changes_data: Whether rows are others afterwards, or only in other files.
    """

    table: LakeTable
    index: KeyIndex
    settled: Offsets | None = None
    changes_data: bool = True
    _old: list[DataFile] = field(default_factory=list)
    _hidden: list[tuple[DataFile, np.ndarray]] = field(default_factory=list)
    _new: list[DataFile] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _vectors: list[dict[str, Any]] = field(default_factory=list)
    _pool: list[pa.Table] = field(default_factory=list)
    _unforced: list[Path] = field(default_factory=list)
    _writing: Future[DataFile] | None = None

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writing is not None:
            wait([self._writing])
        if error is None:
            return
        # A commit may fail in what comes after it, e.g. a checkpoint: then the files are the table's.
        named = self._names + [vector["pathOrInlineDv"] for vector in self._vectors]
        if not self.table.was_committed(named):
            for name in self._names:
                (self.table.path / name).unlink(missing_ok=True)
                self.index.forget(self.table.path / name)

    def remove(self, files: Iterable[DataFile]) -> None:
        """Let files be no longer part of the table."""
        self._old.extend(files)

    def hide(self, file: DataFile, rows: np.ndarray) -> None:
        """Let a file's deletion vector hide exactly these rows."""
        self._hidden.append((file, rows))

    def add(self, rows: pa.Table) -> None:
        """Add rows: as a file when they are many, else together with others."""
        if not small(rows):
            self._write_beside(rows)
        elif len(rows):
            self._pool.append(rows)
            pooled = pa.concat_tables(self._pool)
            if not small(pooled):
                self._pool = []
                self._write_beside(pooled)

    def _write_beside(self, rows: pa.Table) -> None:
        """Write files while the caller gathers rows for the next."""
        for piece in pieces(rows):
            self._written()
            self._writing = beside(self._write_for_good, self._named(), piece)

    def _written(self) -> None:
        if self._writing is not None:
            self._new.append(self._writing.result())
            self._writing = None

    def _named(self) -> Path:
        self._names.append(new_name())
        return self.table.path / self._names[-1]

    def _write_for_good(self, path: Path, rows: pa.Table) -> DataFile:
        file = self._write(path, rows)
        sync(path)
        return file

    def _write(self, path: Path, rows: pa.Table) -> DataFile:
        write(path, rows)
        self.index.add(path, rows)
        return DataFile(path.name, path.stat().st_size, len(rows), statistics=statistics(rows))

    def commit(self) -> list[DataFile]:
        """Commit; return the files that are no longer part of the table as they were.

        Raises:
            Conflict: The table has moved on; nothing was changed.
            OSError: The disk refuses; nothing was changed.
        """
        if self._pool:
            path = self._named()
            self._new.append(self._write(path, pa.concat_tables(self._pool)))
            self._unforced.append(path)
        self._written()
        before = [*self._old, *(file for file, _ in self._hidden)]
        masked: list[DataFile] = []
        if self._hidden:
            self._vectors = write_vectors(self.table.path, [rows for _, rows in self._hidden])
            masked = [
                replace(file, deleted=rows, vector=vector)
                for (file, rows), vector in zip(self._hidden, self._vectors, strict=True)
            ]
        after = [*self._new, *masked]
        if not before and not after:
            return []
        hit("delta.before_commit", "delta")
        self.table.commit(before, after, self._unforced, settled=self.settled, changes_data=self.changes_data)
        hit("delta.after_commit", "delta")
        if not all((self.table.path / file.path).exists() for file in self._new):
            # Another writer's VACUUM without a retention takes files that no commit names yet.
            self.table.commit(after, before)
            raise Conflict("new files were vacuumed before they were committed")
        for file in self._old:
            self.index.forget(self.table.path / file.path)
        return before
