"""The engine's own batches over models: its checkpoint's files are real, Spark and Kafka are not."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from connectors.debezium import lsn_of
from headrace.config.pipeline import PipelineSpec, Swept
from headrace.config.request import Request
from headrace.model.errors import HeadraceError
from headrace.model.letter import LetterId
from headrace.model.position import Position
from sinks.base import Sink
from spark_jobs import batch, deadletter, driver_apply, ownership, troubles
from spark_jobs.apply import sink_of
from spark_jobs.batch import Batches
from spark_jobs.desk import Desk
from spark_jobs.held import load_holds
from spark_jobs.letters import read_letters
from spark_jobs.offsets import Ranges
from spark_jobs.ownership import Holding
from spark_jobs.peek import Mark
from spark_jobs.progress import Progress
from spark_jobs.reader import Raw
from tests.property.simulation.kafka import Topic
from tests.property.simulation.store import Died

__all__ = ["Engine", "without_time"]

_SLICE = 6
"""So many records are read at a time."""

_FRAME: Any = SimpleNamespace(sparkSession=None)


class Unread(Exception):
    """Kafka does not have what is to be read: the query ends, and begins again."""


class _Kafka:
    """Stands for the reader, the look beside the query and the administrator's client."""

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics

    def slices(self, ranges: Ranges, most_bytes: int) -> Iterator[list[Raw]]:
        found = []
        for (name, partition), (begin, end) in sorted(ranges.items()):
            topic = self._topics[name]
            if begin < end and (begin < topic.first or end > len(topic.records)):
                raise Unread
            found += [Raw(name, partition, at, *topic.records[at]) for at in range(begin, end)]
        yield from (found[at : at + _SLICE] for at in range(0, len(found), _SLICE))

    def marks(self, topic: str, partition: int, begin: int, end: int) -> list[Mark]:
        kept = self._topics[topic]
        there = range(max(begin, kept.first), min(end, len(kept.records)))
        return [Mark(at, lsn_of(kept.records[at][1]), kept.times[at]) for at in there]

    def beginning(self, topic: str, partition: int) -> int:
        return self._topics[topic].first

    def describe_topics(self, names: object, request_timeout: float) -> dict[str, Any]:
        def told(topic: Topic) -> Any:
            return SimpleNamespace(result=lambda: SimpleNamespace(topic_id=topic.identity))

        return {name: told(topic) for name, topic in self._topics.items()}

    def close(self) -> None:
        """Nothing is open."""


class _Record(NamedTuple):
    """A record as Spark gives it."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    headers: None = None


class Engine:
    """One sink's query, killed and started at will.

    Args:
        folder: Of everything it keeps.
        spec: Its pipeline.
        topics: By name.
    """

    def __init__(self, folder: Path, spec: PipelineSpec, topics: Mapping[str, Topic]) -> None:
        self._folder, self._topics = folder, topics
        self.spec = spec
        self.begin_life(spec)

    # ------------------------------------------------------------ its life

    def begin_life(self, spec: PipelineSpec) -> None:
        """Start with nothing of before but the owner's file."""
        shutil.rmtree(spec.checkpoint, ignore_errors=True)
        self._progress_file.unlink(missing_ok=True)
        for name in ("offsets", "commits"):
            (spec.checkpoint / name).mkdir(parents=True)
        (spec.checkpoint / "metadata").write_text(json.dumps({"id": "q"}))
        self._next = 0
        self._done: dict[str, int] = {}
        self.start(spec)

    def start(self, spec: PipelineSpec | None = None) -> None:
        """Start, after a kill or with another pipeline; what lives in memory only is gone."""
        self.spec = spec or self.spec
        own = self.spec.model_dump_json()
        self._progress = Progress(self._progress_file, self.spec)
        turn, holding = threading.Lock(), Holding(self.spec, lambda: sink_of(own)[0])
        self._batches = Batches(self.spec, self._progress, turn, holding)
        self._desk = Desk(self.spec, self._folder / "requests", turn, holding, self._batches.requested)
        kafka: Any = _Kafka(self._topics)
        self._batches._reader = self._batches._applier._reader = kafka
        vars(self._batches._history).update(_peek=kafka, _admin=kafka)
        self._batches.started()

    def finish_run(self, topic: str, mark: int, end: int) -> bool:
        """Sweep a table as a run does at its end, by the query's own desk, and note it in the pipeline."""
        table = next(table for table in self.spec.tables if table.topic == topic)
        if self.told_offset(topic) < end:
            return False
        name, version = str(table.schema_.table), Position(table.epoch, mark).version
        try:
            self._desk._answer(Request(sweep={name: [version]}))
        except Died:
            self.start()
            return False
        except HeadraceError:
            return False
        swept = {**self.spec.swept, topic: Swept(marks=(mark,), ends=(end,))}
        self.start(self.spec.model_copy(update={"swept": swept}))
        return True

    def replay(self) -> bool:
        """Have the desk apply all letters that wait; return whether it could."""
        held = load_holds(self.spec.checkpoint).held
        places: dict[str, list[tuple[str, int, int, int]]] = {}
        seen: set[LetterId] = set()
        for path in sorted(self.spec.dead_letters.glob("*.avro")):
            for letter in read_letters(path):
                at = letter.id
                version = Position(at.epoch, at.offset, at.partition).version
                if at not in seen and version in held.get(letter.table, {}).get(str(letter.row), ()):
                    seen.add(at)
                    places.setdefault(path.name, []).append((at.topic, at.epoch, at.partition, at.offset))
        try:
            self._desk._answer(Request(replay=places))
        except Died:
            self.start()
            return False
        except HeadraceError:
            return False
        return True

    # ------------------------------------------------------------ its steps

    def deliver(self, count: int) -> bool:
        """Run a batch, that of before if it was not completed; return whether it was."""
        offsets = self.spec.checkpoint / "offsets" / str(self._next)
        if offsets.exists():
            planned: dict[str, dict[str, int]] = json.loads(offsets.read_text().splitlines()[-1])
        else:
            ends = {
                name: min(self._done.get(name, 0) + count, len(topic.records))
                for name, topic in self._topics.items()
            }
            if ends == self._done or not (self._done or any(ends.values())):
                return True
            planned = {name: {"0": end} for name, end in ends.items()}
            offsets.write_text("\n".join(["v1", "{}", json.dumps(planned)]))
        try:
            self._batches.run(_FRAME, self._next)
        except (Died, Unread, HeadraceError):
            self.start()
            return False
        (self.spec.checkpoint / "commits" / str(self._next)).write_text("v1\n{}")
        self._done = {name: ends["0"] for name, ends in planned.items()}
        self._next += 1
        return True

    def look(self) -> bool:
        """Look at the store as an idle query does; return whether it was as it should be, or is again."""
        for part in (self._batches._history, self._batches._targets):
            part._looked = float("-inf")
        self._batches._history._compared = float("-inf")
        try:
            self._batches.look(cast("Any", None))
        except (Died, Unread):
            self.start()
            return False
        except HeadraceError:
            return False
        return self._batches.proven > 0

    # ------------------------------------------------------------ what it tells

    @property
    def _progress_file(self) -> Path:
        return self._folder / "progress.json"

    @property
    def _told(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self._progress_file.read_bytes())
        return told

    def settled(self, topic: str) -> int:
        """Return the offset up to which batches are complete."""
        return self._done.get(topic, 0)

    def noted(self, topic: str) -> int:
        """Return the offset of the record by which it is noticed that Kafka has lost some; -1 if none."""
        file = self.spec.checkpoint / "history.json"
        known = json.loads(file.read_bytes()) if file.exists() else {}
        return int(known.get(topic, {"last": {}})["last"].get("0", [-1])[0])

    def told_offset(self, topic: str) -> int:
        """Return the offset up to which the sink says that it has all."""
        return int(self._told["offsets"].get(topic, {}).get("0", 0)) if self._progress_file.exists() else 0

    def told_trouble(self, table: str) -> str:
        """Return the code of the trouble that a table is said to be in."""
        return str((self._told["tables"][table]["trouble"] or {}).get("code", ""))

    def told_behind(self, table: str) -> int:
        """Return how many rows of a table are said to be behind."""
        return int(self._told["tables"][table]["behind"])

    def sink(self) -> Sink:
        """Return the store, for who does not go through the query."""
        return sink_of(self.spec.model_dump_json())[0]


def without_time(patch: pytest.MonkeyPatch, topics: Mapping[str, Topic]) -> None:
    """Let nothing depend on how long it takes, nor on which thread is first."""
    infinity = float("inf")
    patch.setattr("spark_jobs.history._EVERY_S", infinity)
    patch.setattr("spark_jobs.targets._EVERY_S", infinity)
    patch.setattr(batch, "_TIDY_EVERY_S", infinity)
    patch.setattr("spark_jobs.rest._MANY", infinity)
    patch.setattr(ownership, "_TRUSTED_S", -1.0)
    patch.setattr(ownership, "_NOTICED_S", 0.0)
    patch.setattr(troubles, "_FIRST_PAUSE_S", 0.0)
    patch.setattr(troubles, "_LONGEST_PAUSE_S", 0.0)
    patch.setattr(driver_apply, "_THREADS", 1)

    def chosen(session: object, bootstrap: str, wanted: Iterable[tuple[str, int, int]]) -> Any:
        found = [
            _Record(name, partition, at, *topics[name].records[at])
            for name, partition, at in wanted
            if topics[name].first <= at < len(topics[name].records)
        ]
        return SimpleNamespace(collect=lambda: found)

    patch.setattr(deadletter, "_chosen", chosen)
    patch.setattr(deadletter, "_slices", lambda session, bootstrap, places: iter([places]))
