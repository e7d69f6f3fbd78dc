"""Whether Kafka still tells the history that was applied: topics gone, made anew, gone back or cut."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from headrace.config.kafka import KafkaAddress
from headrace.config.pipeline import PipelineSpec, write_private
from headrace.model.errors import HeadraceError, SourceError
from headrace.model.pasted import command
from sinks.base import Place
from spark_jobs.offsets import Settled, Span, forget
from spark_jobs.peek import KafkaPeek

__all__ = ["History"]

_EVERY_S = 5.0
_COMPARE_S = 30.0
"""So often is all compared that nobody has added to, and does a query look that never rests."""
_TIMEOUT_S = 5.0
_BACK = 50
"""So many offsets before an end, a record is looked for that stands for it; markers are none."""


class History:
    """What the sink's topics were when they were applied; a small file beside the checkpoint.

    Args:
        spec: The sink's pipeline.

    Attributes:
        missing: Topics that Kafka did not have when it was looked at last; they may be on their way back.
        gone: Topic → error for those that do not come back.
    """

    def __init__(self, spec: PipelineSpec) -> None:
        self._spec = spec
        self._file = spec.checkpoint / "history.json"
        self._known = self._load()
        self._doubtful = True
        self._looked = self._compared = float("-inf")
        self._noted: Settled = {}
        self.missing: frozenset[str] = frozenset()
        self.gone: Mapping[str, HeadraceError] = {}

    @cached_property
    def _peek(self) -> KafkaPeek:
        return KafkaPeek(self._spec.kafka_bootstrap, f"headrace-{self._spec.sink}-history")

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({**KafkaAddress.parse(self._spec.kafka_bootstrap).librdkafka(), "log_level": 0})

    def _load(self) -> dict[str, dict[str, Any]]:
        """Return topic → its ``id``, and ``last``: partition → offset and time of one of its last records."""
        try:
            known: dict[str, dict[str, Any]] = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        epochs = {table.topic: table.epoch for table in self._spec.tables}
        return {topic: told for topic, told in known.items() if epochs.get(topic) == told["epoch"]}

    def forget_former(self) -> None:
        """Take out of the checkpoint which ends it has of topics that were made anew for a later epoch.

        A table that was taken out and in again while the query did not run is one; where its query runs, a
        batch without the topic has come between.
        """
        try:
            noted: dict[str, dict[str, Any]] = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return
        forget(self._spec.checkpoint, [topic for topic in noted if topic not in self._known])

    def doubt(self) -> None:
        """Look at everything again the next time: the broker may have been away."""
        self._doubtful = True

    @property
    def is_due(self) -> bool:
        """Return whether a batch should look, because nobody has done so for long."""
        return self._doubtful or time.monotonic() - self._looked > _COMPARE_S

    def lose_topics(self) -> bool:
        """Note as gone which topics Kafka does not have; return whether one more is.

        Asked after Spark has missed one at several looks. A Kafka that has none of them is another one, or
        not yet what it was: nothing is said of single topics then.
        """
        try:
            kept = self._identities()
        except KafkaException:
            return False
        lost = self.missing.difference(self.gone) if kept else frozenset()
        self.gone = {**self.gone, **{topic: self._is_gone(topic) for topic in lost}}
        return bool(lost)

    def shortened(self, span: Span) -> dict[str, HeadraceError]:
        """Return topic → error for those that end before what was settled of them."""
        return {
            topic: self._went_back(topic, f"it ends at {end + 1}, and {begin + 1} was settled")
            for (topic, _), (begin, end) in span.back.items()
        }

    def changed(self, settled: Settled) -> dict[str, HeadraceError]:
        """Return topic → error for those that are no longer what they were; looks now and then only."""
        now = time.monotonic()
        if not self._doubtful and now - self._looked < _EVERY_S:
            return {}
        self._looked = now
        try:
            found = self._made_anew()
            moved = {place: end for place, end in settled.items() if self._noted.get(place) != end}
            everything = self._doubtful or now - self._compared > _COMPARE_S
            # A broker that has lost records may be back, with others in their place, before anybody notices.
            found = self._cut(None if everything else moved) | found
            left = found.keys() | self.missing
            self._note({place: end for place, end in moved.items() if place[0] not in left})
            self._compared = now if everything else self._compared
        except (KafkaException, SourceError):
            self._doubtful = True  # it may come back as another one
            return {}  # whoever reads from it says that it does not answer
        self._doubtful = False
        return found

    def firsts(self, places: Collection[Place]) -> dict[Place, int]:
        """Return the first offset that Kafka keeps of each place.

        Raises:
            SourceError: When it does not say (``KAFKA_UNREADABLE``).
        """
        return {place: self._peek.beginning(*place) for place in places}

    def hole(self, topic: str) -> SourceError:
        """Return the error that stands for changes which neither Kafka nor the sink has any more."""
        table = next(table.schema_.table for table in self._spec.tables if table.topic == topic)
        return SourceError(
            f"Kafka no longer holds changes of {table} that sink {self._spec.sink} lacks.",
            code="KAFKA_DATA_LOST",
            hint=command("headrace", "resnapshot", self._spec.source, str(table)),
        )

    def _identities(self) -> dict[str, str]:
        """Return topic → what identifies it, for those that Kafka tells; note those that it does not have."""
        topics = [table.topic for table in self._spec.tables]
        described = self._admin.describe_topics(TopicCollection(topics), request_timeout=_TIMEOUT_S)
        found, missing = {}, set()
        for topic in topics:
            try:
                found[topic] = str(described[topic].result().topic_id)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    missing.add(topic)
        self.missing = frozenset(missing)
        return found

    def _made_anew(self) -> dict[str, HeadraceError]:
        identities = self._identities()
        found: dict[str, HeadraceError] = {}
        for table in self._spec.tables:
            identity = identities.get(table.topic)
            if identity is None:
                continue
            if table.topic not in self._known:
                self._known[table.topic] = {"epoch": table.epoch, "id": identity, "last": {}}
                self._save()
            known = self._known[table.topic]
            if known["id"] != identity:
                found[table.topic] = SourceError(
                    f"The topic {table.topic} was made anew: its offsets mean something else.",
                    code="TOPIC_RECREATED",
                    hint=self._remedy,
                )
        return found

    def _cut(self, places: Collection[Place] | None) -> dict[str, HeadraceError]:
        """Return the topics in which another record, or none, stands where one was applied.

        Args:
            places: Where to look; everywhere when None.
        """
        found: dict[str, HeadraceError] = {}
        for topic, told in self._known.items():
            for partition, (offset, at_ms) in told["last"].items():
                if topic in self.missing or (places is not None and (topic, int(partition)) not in places):
                    continue
                if self._peek.beginning(topic, int(partition)) > offset:
                    continue
                marks = self._peek.marks(topic, int(partition), offset, offset + 1)
                if [mark.at_ms for mark in marks] != [at_ms]:
                    found[topic] = self._went_back(topic, f"offset {offset} is not the record it was")
        return found

    def _note(self, moved: Settled) -> None:
        """Note a record that stands for each end that has moved."""
        for (topic, partition), end in moved.items():
            known = self._known.get(topic)
            first = max(self._peek.beginning(topic, partition), end + 1 - _BACK)
            marks = self._peek.marks(topic, partition, first, end + 1) if known is not None else []
            if known is not None and marks:
                known["last"][str(partition)] = [marks[-1].offset, marks[-1].at_ms]
        self._noted |= moved
        if moved:
            self._save()

    def _save(self) -> None:
        write_private(self._file, json.dumps(self._known))

    def _is_gone(self, topic: str) -> SourceError:
        return SourceError(
            f"The topic {topic} is gone, and with it what sink {self._spec.sink} had not applied of it.",
            code="TOPIC_MISSING",
            hint=self._remedy,
        )

    def _went_back(self, topic: str, why: str) -> SourceError:
        return SourceError(
            f"Kafka has lost records of {topic} that sink {self._spec.sink} has applied: {why}.",
            code="KAFKA_WENT_BACK",
            hint=self._remedy,
        )

    @property
    def _remedy(self) -> str:
        return f"headrace recover {self._spec.source}"
