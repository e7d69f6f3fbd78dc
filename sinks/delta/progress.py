"""How far everything is settled, beside the data: a small file, replaced whole, forced to the disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.model.life import is_among, topic_in
from headrace.observe.disk import make_folder, sync
from sinks.base import Progress
from sinks.delta.trouble import put_back

__all__ = ["ProgressFile", "Witness"]

_Stamp = tuple[int, int]
"""When a file was written, and its number."""


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
    _cached: tuple[_Stamp, dict[str, Any]] | None = field(default=None)
    _looked: tuple[_Stamp | None] | None = field(default=None)

    def look(self) -> dict[str, Any]:
        """Return what is stored, and remember which file says so: more is written over no other."""
        self._looked = (self._stamp(),)
        return self.read()

    def _stamp(self) -> _Stamp | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_ino

    def read(self) -> dict[str, Any]:
        """Return what is stored: ``offsets`` by topic and partition, ``tables`` by topic."""
        stamp = self._stamp()
        if stamp is None:
            return {"offsets": {}, "tables": {}}
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

    def of_table(self, table: Path) -> dict[str, dict[str, int]]:
        """Return incarnation of a topic → partition → offset of what is settled of a table's topics."""
        stored, place = self.read(), str(table.relative_to(self.root))
        topics = {topic for topic, entry in stored["tables"].items() if entry["path"] == place}
        return {life: offsets for life, offsets in stored["offsets"].items() if topic_in(life) in topics}

    def witness(self, table: Path) -> tuple[str, int] | None:
        """Return identity and version of a table when its progress was settled last."""
        place = str(table.relative_to(self.root))
        found = [entry for entry in self.read()["tables"].values() if entry["path"] == place]
        newest = max(found, key=lambda entry: int(entry["version"]), default=None)
        return None if newest is None else (str(newest["id"]), int(newest["version"]))

    def settle(self, progress: Progress, witnesses: Iterable[Witness]) -> None:
        """Store more progress, and what proves it.

        Raises:
            SinkWentBack: The file is not the one that was looked at last (``DELTA_PUT_BACK``).
        """
        if self._looked is not None and self._looked[0] != self._stamp():
            raise put_back(self.root)
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
        gone = set(topics)
        known = [name for name in {**content["tables"], **content["offsets"]} if is_among(name, gone)]
        for name in known:
            content["tables"].pop(name, None)
            content["offsets"].pop(name, None)
        if known and (content["tables"] or content["offsets"]):
            self._write(content)
        elif known:
            self._remove()

    def forget_table(self, table: Path) -> None:
        """Drop the progress of the topics that a removed table held."""
        place = str(table.relative_to(self.root))
        self.forget([topic for topic, entry in self.read()["tables"].items() if entry["path"] == place])

    def _remove(self) -> None:
        with self._changing():
            self.path.unlink(missing_ok=True)

    def _write(self, content: Mapping[str, Any]) -> None:
        make_folder(self.path.parent)
        draft = self.path.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(json.dumps(content, sort_keys=True), encoding="utf-8")
        sync(draft)
        with self._changing():
            draft.replace(self.path)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Have what is done to the file reach the disk; what was looked at last is then the file as it is."""
        ours = self._looked is not None and self._looked[0] == self._stamp()
        yield
        if ours:
            self._looked = (self._stamp(),)
        sync(self.path.parent)
