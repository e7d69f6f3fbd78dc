"""Whether each table's target is the one that was filled: not gone, not made anew, not restored alone."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from headrace.config.pipeline import PipelineSpec, TableSpec, write_private
from sinks.base import Sink

__all__ = ["Targets", "newest_targets"]

_EVERY_S = 0.9
_FILE = "targets.json"


def newest_targets(checkpoint: Path, tables: Sequence[TableSpec]) -> tuple[TableSpec, ...]:
    """Return the tables with the numbers of the targets that the checkpoint knows last."""
    known, _ = _load(checkpoint / _FILE)
    newest: dict[str, int] = {}
    for place in known:
        life, _, number = place.rpartition(".")
        newest[life] = max(int(number), newest.get(life, 0))
    return tuple(table.model_copy(update={"target": newest.get(_life(table), 0)}) for table in tables)


def _life(table: TableSpec) -> str:
    return f"{table.topic}@{table.epoch}"


def _load(file: Path) -> tuple[dict[str, str], set[str]]:
    try:
        stored = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}, set()
    return stored["identities"], set(stored["refilled"])


class Targets:
    """What tells the targets of one sink from others; a small file beside the checkpoint.

    Args:
        spec: The sink's pipeline.
    """

    def __init__(self, spec: PipelineSpec) -> None:
        self._file = spec.checkpoint / _FILE
        self._schemas = {table.topic: table.schema_ for table in spec.tables}
        self._places = {table.topic: f"{_life(table)}.{table.target}" for table in spec.tables}
        known, self._refilled = _load(self._file)
        # An older version noted the same of every index.
        self._known = {place: told for place, told in known.items() if told != "/"}
        self._looked = float("-inf")
        self._lost: set[str] = set()

    def lost(self, sink: Sink) -> set[str]:
        """Return the topics whose target is not the one that was filled; asks the store now and then only.

        Raises:
            SinkUnavailable: When the store does not say.
        """
        now = time.monotonic()
        if now - self._looked < _EVERY_S:
            return self._lost
        found = sink.identities(list(self._schemas.values()))
        if found is None:
            return set()
        there = {topic: found.get(schema.table) for topic, schema in self._schemas.items()}
        self._keep(
            {topic: told for topic, told in there.items() if told and self._places[topic] not in self._known}
        )
        self._lost = {t for t, told in there.items() if told is None or told != self._known[self._places[t]]}
        self._looked = now
        return self._lost

    def back(self, sink: Sink, topics: Collection[str]) -> set[str]:
        """Return those of some topics whose target was not there, or another, and is the one that was filled.

        Others may have kept readers from it for a moment. What its progress lacks is told by the next look.

        Raises:
            SinkUnavailable: When the store does not say.
        """
        known = {topic for topic in self._lost & set(topics) if self._places[topic] in self._known}
        if not known:
            return set()
        self._looked = float("-inf")
        return known - self.lost(sink)

    def note(self, sink: Sink, topics: Collection[str]) -> None:
        """Take the targets as they are now for those that are filled."""
        found = sink.identities([self._schemas[topic] for topic in topics])
        if found is None:
            return
        self._keep({t: found[s.table] for t in topics if (s := self._schemas[t]).table in found})
        self._looked = float("-inf")

    def _keep(self, told: Mapping[str, str]) -> None:
        if told:
            self._known |= {self._places[topic]: identity for topic, identity in told.items()}
            self._save()

    def refill(self, topics: Collection[str]) -> None:
        """Note, durably, that all of these topics is being applied again."""
        self._refilled |= set(topics)
        self._save()

    def refilled(self, gone: Collection[str]) -> set[str]:
        """Return the topics that were filled again, which are not among those that are ``gone``."""
        return self._refilled - set(gone)

    def done(self, topics: Collection[str]) -> None:
        """Note that nothing is left to do for topics that were filled again."""
        self._refilled -= set(topics)
        self._save()

    def _save(self) -> None:
        content = {"identities": self._known, "refilled": sorted(self._refilled)}
        write_private(self._file, json.dumps(content))
