"""How far everything is settled, beside the data: a small file, replaced whole, forced to the disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sinks.base import Progress
from sinks.delta.files import sync

__all__ = ["ProgressFile", "Witness"]


@dataclass(frozen=True, slots=True)
class Witness:
    """What proves that a table still has what was settled.

    Args:
        path: The table's directory.
        identity: The Delta table's id.
        version: A version it had reached.
        topics: The topics whose changes it holds.
    """

    path: Path
    identity: str
    version: int
    topics: frozenset[str]


@dataclass(slots=True)
class ProgressFile:
    """The progress of one sink.

    Args:
        path: The file.
        root: The lake's path; tables are noted relative to it.
    """

    path: Path
    root: Path
    _cached: tuple[tuple[int, int], dict[str, Any]] | None = field(default=None)

    def read(self) -> dict[str, Any]:
        """Return what is stored: ``offsets`` by topic and partition, ``tables`` by topic."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return {"offsets": {}, "tables": {}}
        stamp = found.st_mtime_ns, found.st_ino
        if self._cached is None or self._cached[0] != stamp:  # else: nobody has restored another
            self._cached = stamp, json.loads(self.path.read_bytes())
        return self._cached[1]

    def offsets(self, topics: Iterable[str]) -> Progress:
        """Return the stored progress of some topics."""
        stored = self.read()["offsets"]
        return {
            (topic, int(partition)): offset
            for topic in topics
            for partition, offset in stored.get(topic, {}).items()
        }

    def settle(self, progress: Progress, witnesses: Iterable[Witness]) -> None:
        """Store more progress, and what proves it."""
        content = deepcopy(self.read())
        for (topic, partition), offset in progress.items():
            content["offsets"].setdefault(topic, {})[str(partition)] = offset
        for witness in witnesses:
            entry = {
                "path": str(witness.path.relative_to(self.root)),
                "id": witness.identity,
                "version": witness.version,
            }
            content["tables"].update(dict.fromkeys(witness.topics, entry))
        self._write(content)

    def forget(self, topics: Iterable[str]) -> None:
        """Drop the progress of topics."""
        content = deepcopy(self.read())
        known = [topic for topic in topics if topic in content["tables"] or topic in content["offsets"]]
        for topic in known:
            content["tables"].pop(topic, None)
            content["offsets"].pop(topic, None)
        if known:
            self._write(content)

    def forget_table(self, table: Path) -> None:
        """Drop the progress of the topics that a removed table held."""
        place = str(table.relative_to(self.root))
        self.forget([topic for topic, entry in self.read()["tables"].items() if entry["path"] == place])

    def _write(self, content: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(json.dumps(content, sort_keys=True), encoding="utf-8")
        sync(draft)
        draft.replace(self.path)
        sync(self.path.parent)
