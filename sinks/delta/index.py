"""Which rows of which files hold given keys: key and version of every row, in memory as far as they fit."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sinks.delta.files import DataFile
from sinks.delta.shape import KEY, VERSION

__all__ = ["Found", "KeyIndex"]


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


@dataclass(slots=True)
class KeyIndex:
    """A cache of files' keys, bounded in bytes; files never change, so entries never go stale.

    Args:
        capacity: Most bytes to hold.
    """

    capacity: int
    _held: OrderedDict[Path, tuple[pa.Array, np.ndarray]] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def locate(self, directory: Path, files: Iterable[DataFile], keys: pa.Array) -> list[Found]:
        """Return where the keys are; a file that holds none of them is left out.

        Raises:
            FileNotFoundError: Another writer has removed a file.
        """
        found = []
        for file in files:
            held, versions = self._of(directory / file.path)
            position = pc.index_in(held, value_set=keys).fill_null(-1).to_numpy()
            rows = _live(file, np.flatnonzero(position >= 0))
            if len(rows):
                found.append(Found(file, rows, position[rows], versions[rows]))
        return found

    def older(self, directory: Path, file: DataFile, version: int) -> tuple[np.ndarray, pa.Array]:
        """Return the rows of a file stored with a version below ``version``, and their keys."""
        keys, versions = self._of(directory / file.path)
        rows = _live(file, np.flatnonzero(versions < version))
        return rows, keys.take(pa.array(rows))

    def add(self, path: Path, table: pa.Table) -> None:
        """Remember the keys of a file just written."""
        self._hold(path, self._entry(table))

    def forget(self, path: Path) -> None:
        """Drop what is remembered of a file."""
        with self._lock:
            entry = self._held.pop(path, None)
            if entry is not None:
                self._bytes -= _size(entry)

    def _of(self, path: Path) -> tuple[pa.Array, np.ndarray]:
        with self._lock:
            entry = self._held.get(path)
            if entry is not None:
                self._held.move_to_end(path)
                return entry
        entry = self._entry(pq.ParquetFile(path).read(columns=[KEY, VERSION]))
        self._hold(path, entry)
        return entry

    @staticmethod
    def _entry(table: pa.Table) -> tuple[pa.Array, np.ndarray]:
        keys = pa.concat_arrays(table[KEY].cast(pa.string()).chunks or [pa.array([], pa.string())])
        return keys, table[VERSION].to_numpy()

    def _hold(self, path: Path, entry: tuple[pa.Array, np.ndarray]) -> None:
        with self._lock:
            if path in self._held:
                return
            self._held[path] = entry
            self._bytes += _size(entry)
            while self._bytes > self.capacity and self._held:
                _, dropped = self._held.popitem(last=False)
                self._bytes -= _size(dropped)


def _live(file: DataFile, rows: np.ndarray) -> np.ndarray:
    return rows if file.deleted is None else np.setdiff1d(rows, file.deleted, assume_unique=True)


def _size(entry: tuple[pa.Array, np.ndarray]) -> int:
    keys, versions = entry
    return int(keys.nbytes) + int(versions.nbytes)
