"""Which rows of which files hold given keys.

In memory are, of every file, numbers that stand for its keys, by which most files are ruled out without
being read and in a time that hardly follows their size; and, as far as they fit, keys and versions.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sinks.delta.files import DataFile
from sinks.delta.hashes import equal_pairs, hashes
from sinks.delta.shape import KEY, VERSION

__all__ = ["Found", "KeyIndex", "shared_index"]


_NOBODY = "\x00"
"""Stands for the key of a row that has none; keys of changes spell this character otherwise."""


@dataclass(frozen=True, slots=True)
class Found:
    """Where some of the sought keys are in one file.

    Args:
        file: The file.
        rows: Row numbers in it, ascending.
        sought: For each of them, which of the sought keys it is.
        versions: For each of them, the stored version.
    """

    file: DataFile
    rows: np.ndarray
    sought: np.ndarray
    versions: np.ndarray

    def only(self, chosen: np.ndarray) -> Found:
        """Return the same with the chosen rows only."""
        return Found(self.file, self.rows[chosen], self.sought[chosen], self.versions[chosen])


@dataclass(frozen=True, slots=True)
class _Prints:
    """Numbers for the keys of a file, ascending, and the row that each is of."""

    numbers: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, keys: pa.Array) -> _Prints:
        found = hashes(keys)
        order = np.argsort(found)
        return cls(found[order], order.astype(np.int32))

    @property
    def nbytes(self) -> int:
        return int(self.numbers.nbytes + self.rows.nbytes)


@dataclass(frozen=True, slots=True)
class _Content:
    """Keys and versions of a file, row by row."""

    keys: pa.Array
    versions: np.ndarray

    @classmethod
    def of(cls, table: pa.Table) -> _Content:
        # A row without these is not ours: no change is ever meant for it, and it is older than all of them.
        keys = table[KEY].cast(pa.string())
        if keys.null_count:
            keys = keys.fill_null(_NOBODY)
        versions = table[VERSION].cast(pa.int64())
        if versions.null_count:
            versions = versions.fill_null(0)
        return cls(pa.concat_arrays(keys.chunks or [pa.array([], pa.string())]), versions.to_numpy())

    @property
    def nbytes(self) -> int:
        return int(self.keys.nbytes) + int(self.versions.nbytes)


@dataclass
class KeyIndex:
    """A cache of files' keys, bounded in bytes; files never change, so entries never go stale.

    Args:
        capacity: Most bytes to hold.
    """

    capacity: int
    _prints: OrderedDict[Path, _Prints] = field(default_factory=OrderedDict)
    _contents: OrderedDict[Path, _Content] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def locate(self, directory: Path, files: Iterable[DataFile], keys: pa.Array) -> list[Found]:
        """Return where the keys are; a file that holds none of them is left out.

        Raises:
            FileNotFoundError: Another writer has removed a file.
        """
        sought = _Prints.of(keys)
        found = []
        for file in files:
            path = directory / file.path
            prints = self._prints_of(path)
            here, there = equal_pairs(prints.numbers, sought.numbers)
            if len(here):
                rows = prints.rows[here]
                order = np.argsort(rows, kind="stable")
                place = self._verified(path, file, rows[order], sought.rows[there][order], keys)
                if len(place.rows):
                    found.append(place)
        return found

    def _verified(
        self, path: Path, file: DataFile, rows: np.ndarray, sought: np.ndarray, keys: pa.Array
    ) -> Found:
        """Return those of the rows that are live and do hold the keys."""
        content = self._content_of(path)
        same = pc.equal(content.keys.take(pa.array(rows)), keys.take(pa.array(sought)))
        stays = same.to_numpy(zero_copy_only=False)
        if file.deleted is not None:
            stays &= ~np.isin(rows, file.deleted)
        return Found(file, rows, sought, content.versions[rows]).only(stays)

    def older(self, directory: Path, file: DataFile, floor: int, version: int) -> tuple[np.ndarray, pa.Array]:
        """Return the rows of a file with versions from ``floor`` to below ``version``, and their keys."""
        content = self._content_of(directory / file.path)
        rows = np.flatnonzero((floor <= content.versions) & (content.versions < version))
        if file.deleted is not None:
            rows = np.setdiff1d(rows, file.deleted, assume_unique=True)
        return rows, content.keys.take(pa.array(rows))

    def add(self, path: Path, table: pa.Table) -> None:
        """Remember the keys of a file just written."""
        content = _Content.of(table)
        self._hold(path, _Prints.of(content.keys), content)

    def forget(self, path: Path) -> None:
        """Drop what is remembered of a file."""
        with self._lock:
            for entry in (self._prints.pop(path, None), self._contents.pop(path, None)):
                self._bytes -= entry.nbytes if entry is not None else 0

    def _prints_of(self, path: Path) -> _Prints:
        with self._lock:
            entry = self._prints.get(path)
            if entry is not None:
                self._prints.move_to_end(path)
                return entry
        content = self._content_of(path)
        entry = _Prints.of(content.keys)
        self._hold(path, entry, content)
        return entry

    def _content_of(self, path: Path) -> _Content:
        with self._lock:
            entry = self._contents.get(path)
            if entry is not None:
                self._contents.move_to_end(path)
                return entry
        with pq.ParquetFile(path) as source:
            entry = _Content.of(source.read(columns=[KEY, VERSION]))
        self._hold(path, None, entry)
        return entry

    def _hold(self, path: Path, prints: _Prints | None, content: _Content) -> None:
        with self._lock:
            if prints is not None and path not in self._prints:
                self._prints[path] = prints
                self._bytes += prints.nbytes
            if path not in self._contents:
                self._contents[path] = content
                self._bytes += content.nbytes
            # Contents go first: without them a file is read when it has to be, without prints always.
            for held in (self._contents, self._prints):
                while self._bytes > self.capacity and held:
                    _, dropped = held.popitem(last=False)
                    self._bytes -= dropped.nbytes


_indexes: WeakValueDictionary[Path, KeyIndex] = WeakValueDictionary()
_indexes_lock = threading.Lock()


def shared_index(root: Path, capacity: int) -> KeyIndex:
    """Return the index of a lake: one for the whole process, however many sinks were made for the lake.

    It goes when the last of them does.
    """
    with _indexes_lock:
        index = _indexes.get(root)
        if index is None:
            index = _indexes[root] = KeyIndex(capacity)
        index.capacity = max(index.capacity, capacity)
        return index
