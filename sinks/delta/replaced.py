"""Files that newer ones have replaced: kept for readers of an older version, then removed."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sinks.delta.files import DataFile

__all__ = ["Replaced"]

_GRACE_SECONDS = 60.0
_FOREIGN_SECONDS = 3600.0


@dataclass(slots=True)
class Replaced:
    """What may be deleted from a table's directory, and when.

    Args:
        directory: The table's.
        keep_seconds: How long a replaced file stays.
        keep_bytes: How much room replaced files may take; above it the oldest go after a minute.
    """

    directory: Path
    keep_seconds: float
    keep_bytes: int
    _waiting: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _swept: float = -_FOREIGN_SECONDS

    def add(self, files: Iterable[DataFile]) -> None:
        """Note files that are no longer part of the table."""
        for file in files:
            self._add(file.path, file.size)

    def _add(self, path: str, size: int) -> None:
        if path not in self._waiting:
            self._waiting[path] = (time.monotonic(), size)
            self._bytes += size

    def remove_due(self) -> None:
        """Delete what has waited long enough."""
        now = time.monotonic()
        while self._waiting:
            path, (since, size) = next(iter(self._waiting.items()))
            keep = self.keep_seconds
            if self._bytes > self.keep_bytes:
                keep = min(keep, _GRACE_SECONDS)
            if now - since < keep:
                return
            (self.directory / path).unlink(missing_ok=True)
            del self._waiting[path]
            self._bytes -= size

    def tidy(self, active: Container[str]) -> None:
        """Delete what is due; once an hour look for more in the directory."""
        if time.monotonic() - self._swept < _FOREIGN_SECONDS:
            self.remove_due()
        else:
            self.sweep(active)

    def sweep(self, active: Container[str]) -> None:
        """Find files that no version needs: of an earlier process, of a crash, of another writer.

        What is younger than an hour may belong to a commit another writer is about to make, and stays.
        """
        self._swept = time.monotonic()
        oldest = time.time() - _FOREIGN_SECONDS
        for path in self.directory.glob("*"):
            if path.suffix not in (".parquet", ".bin") or path.name in active or path.name in self._waiting:
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if status.st_mtime < oldest:
                self._add(path.name, status.st_size)
        self.remove_due()
