"""One table of the model: its database, its connector, its topic, and what is known to be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from headrace.config.pipeline import TableSpec
from headrace.model.schema import TableId, TableSchema
from headrace.model.values import canonical_row, key_of
from tests.property.simulation.kafka import Connector, Topic
from tests.property.simulation.source import SCHEMA, Database, Event

__all__ = ["Mirrored"]

_identities = count(1)


@dataclass
class Mirrored:
    """A table.

    Args:
        name: Of the table and of its topic.
        epoch: Of the topic.

    Attributes:
        lost: What Kafka may say it has lost in this life: codes of errors.
        unseen: Whether rows have changed and no record says so; a run that begins later mends that.
        run: Mark and end of the run that reads the table.
    """

    name: str
    epoch: int
    database: Database = field(default_factory=Database)
    topic: Topic = field(default_factory=Topic)
    lost: set[str] = field(default_factory=set)
    unseen: bool = False
    run: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.begin_life(self.epoch)

    @property
    def schema(self) -> TableSchema:
        return TableSchema(TableId("public", self.name), SCHEMA.columns, SCHEMA.key)

    @property
    def spec(self) -> TableSpec:
        return TableSpec(
            topic=self.name, epoch=self.epoch, table=self.schema.as_dict(), topic_id=self.topic.identity
        )

    def begin_life(self, epoch: int) -> None:
        """Begin again: the topic is empty, and the connector reads every row."""
        self.make_anew()
        self.epoch, self.lost, self.unseen, self.run = epoch, set(), False, None
        self.connector = Connector(self.topic)
        self.read()

    def make_anew(self) -> None:
        """Let Kafka lose the topic; somebody makes another."""
        topic = self.topic
        topic.identity, topic.first = f"i{next(_identities)}", 0
        topic.cut(0)
        self.connector = Connector(topic)

    def read(self) -> None:
        """Read all rows."""
        self.connector.read(self.database.rows, self.database.lsn)

    def begin_run(self) -> None:
        """Read the table anew; records from here on tell of every row there is."""
        self.connector.confirm()
        mark = len(self.topic.records)
        self.read()
        self.run = mark, len(self.topic.records)
        self.unseen = False

    def state(self, what: str, key: int, other: int, a: str) -> None:
        """Run a statement; the connector tells of it, but for those that go unseen."""
        told = self._stated(what, key, other, a)
        if what.startswith("unseen"):
            self.unseen = self.unseen or bool(told)
            self.run = None if told else self.run
        else:
            self.connector.committed(told)

    def _stated(self, what: str, key: int, other: int, a: str) -> list[Event]:
        match what:
            case "write" | "touch" | "unseen write":
                return self.database.put(0, [key], a, touch=what == "touch")
            case "copy":
                return self.database.put(0, range(5, 9), a)
            case "move" | "bare move":
                return self.database.move(0, key, other, a, touch=what == "move")
            case "delete" | "unseen delete":
                return self.database.delete(0, key)
            case _:
                return self.database.truncate(0)

    def wanted(self) -> dict[str, dict[str, object]]:
        """Return what a store has to show."""
        rows = self.database.rows.values()
        return {key_of(self.schema, row).id: canonical_row(self.schema, row) for row in rows}
