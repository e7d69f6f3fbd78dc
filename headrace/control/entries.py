"""The registry's tables: what is remembered of sources, sinks, runs, verdicts and dead letters."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Any, cast

from sqlalchemy import JSON, ForeignKey, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from headrace.model.schema import TableSchema

__all__ = [
    "Adding",
    "Base",
    "BegunEntry",
    "BegunTargetEntry",
    "DeadLetterEntry",
    "DeadLetterFile",
    "EndEntry",
    "JournalEntry",
    "RecoveryEntry",
    "ResnapshotEntry",
    "SinkEntry",
    "SourceEntry",
    "SourceTableEntry",
    "TopicEntry",
    "VerdictEntry",
    "WatchEntry",
]


class Adding(Enum):
    """How far the command that adds a source or a sink has come, or that it is being removed."""

    REGISTERED = "registered"
    """Nothing is at work yet: given again, the command removes what it finds and begins anew."""
    STARTED = "started"
    """It is at work: given again, the command waits for what is left to do."""
    GOING = "going"
    """A source is being removed: no sink may be added to it. Given again, that goes on."""


class Base(DeclarativeBase):
    """What every table shares."""

    type_annotation_map = {dict[str, Any]: JSON, dict[str, Any] | None: JSON(none_as_null=True)}  # noqa: RUF012 - SQLAlchemy's own declaration


class SourceEntry(Base):
    """A registered source. Its password is not here, see :class:`headrace.config.secrets.SecretRef`."""

    __tablename__ = "sources"

    name: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    address: Mapped[str]
    placeholder: Mapped[str]
    settings: Mapped[dict[str, Any]]
    system: Mapped[str | None]
    created_ms: Mapped[int]
    loaded_ms: Mapped[int | None]
    """When the initial snapshot was seen to be complete."""
    gap: Mapped[str | None]
    """Why changes are missing from its history. Once written it stays: only a new source heals it."""
    timeline: Mapped[int | None]
    """Of the database's log when it was last seen."""
    flushed: Mapped[int | None]
    """Where the log was then."""
    read: Mapped[int | None]
    """Up to where the connector had delivered it then."""
    heard: Mapped[int | None]
    """Up to where the connector's notifications were read."""
    adding: Mapped[str | None]
    """How far the ``add`` has come, an :class:`~headrace.control.entries.Adding`; None when it has ended."""
    left_out: Mapped[dict[str, Any] | None]
    """``tables``: those of the captured schemas that were there and not chosen, or were declined since, as
    schema and name. None until a look has noted them."""
    tables: Mapped[list[SourceTableEntry]] = relationship(
        cascade="all, delete-orphan", order_by="SourceTableEntry.place", lazy="selectin"
    )

    @property
    def partitions(self) -> int:
        """Return how many partitions each table's topic was made with."""
        return int(self.settings.get("partitions", 1))

    def is_life_of(self, other: SourceEntry) -> bool:
        """Return whether both tell of one registration and of the same topics.

        A name is given again after a removal, and a recovery makes the topics anew.
        """
        ids, others = ({t.topic: t.topic_id for t in entry.tables} for entry in (self, other))
        shared = ids.keys() & others.keys()
        return self.placeholder == other.placeholder and all(ids[name] == others[name] for name in shared)


class BegunEntry(Base):
    """What an ``add`` may have made before it registered, or what is left of one: see :mod:`.begun`."""

    __tablename__ = "begun"

    source: Mapped[str] = mapped_column(primary_key=True)
    at_ms: Mapped[int]
    made: Mapped[bool]
    """Whether anything may be there but this note and the file with the password."""
    plan: Mapped[dict[str, Any]]
    """``kind``, ``address`` (without a password), ``placeholder``, ``settings``, ``system`` and ``tables``;
    ``topics``: those that were there before; ``file``: whether the file with the password was;
    ``connector``: whether a connector may have been created."""


class BegunTargetEntry(Base):
    """A topic, or a target of one, that a command may have made before it registered: see :mod:`.undone`."""

    __tablename__ = "begun_targets"

    sink: Mapped[str] = mapped_column(primary_key=True)
    """Empty for the topic itself."""
    topic: Mapped[str] = mapped_column(primary_key=True)
    source: Mapped[str]
    at_ms: Mapped[int]
    made: Mapped[bool]
    """Whether it was not there before."""
    table: Mapped[dict[str, Any]]
    facts: Mapped[dict[str, Any]]
    asked: Mapped[dict[str, Any]]
    """Of the sink: ``kind``, ``settings``, ``on_schema_change``, ``left_out``."""


class SourceTableEntry(Base):
    """One captured table."""

    __tablename__ = "source_tables"

    source: Mapped[str] = mapped_column(ForeignKey("sources.name"), primary_key=True)
    topic: Mapped[str] = mapped_column(primary_key=True)
    place: Mapped[int]
    topic_id: Mapped[str]
    """Kafka's identity of the topic, as it was when the epoch began."""
    epoch: Mapped[int]
    table: Mapped[dict[str, Any]]
    _read = cast("tuple[dict[str, Any], TableSchema] | None", None)
    """What was read of ``table``: a look asks for the schemas of thousands of tables, and several times."""

    @property
    def schema(self) -> TableSchema:
        """Return the table's schema as the catalogue told it."""
        if self._read is None or self._read[0] is not self.table:
            self._read = (self.table, TableSchema.from_dict(self.table))
        return self._read[1]


class SinkEntry(Base):
    """A registered sink. Its settings may hold credentials and are only shown masked."""

    __tablename__ = "sinks"

    name: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    source: Mapped[str] = mapped_column(ForeignKey("sources.name"))
    settings: Mapped[dict[str, Any]]
    tables: Mapped[dict[str, Any]]
    """Topic → the target's facts."""
    incomplete: Mapped[dict[str, Any]]
    """Topic → offset before which it does not tell all: its beginning was lost, or columns came later."""
    incomplete_ms: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    """Topic → when that was noted. A run that began later has read what was lacking."""
    on_schema_change: Mapped[str] = mapped_column(server_default="lenient")
    """A :class:`~headrace.config.pipeline.SchemaPolicy`."""
    created_ms: Mapped[int]
    adding: Mapped[str | None]
    """As that of a source."""
    left_out: Mapped[dict[str, Any] | None]
    """Topic → why the store has refused its table when the sink was added with ``--skip-unfit``: a list of
    ``code``, ``message`` and ``hint``. The sink is one of all tables all the same."""

    def follows_all(self, topics: Collection[str]) -> bool:
        """Return whether it mirrors all of these, but for what its store has refused."""
        return self.tables.keys() | (self.left_out or {}).keys() >= set(topics)


class TopicEntry(Base):
    """The last epoch given to a topic; it outlives the source."""

    __tablename__ = "topics"

    topic: Mapped[str] = mapped_column(primary_key=True)
    epoch: Mapped[int]


class ResnapshotEntry(Base):
    """One run of a resnapshot; it outlives the command that asked for it."""

    __tablename__ = "resnapshots"

    id: Mapped[str] = mapped_column(primary_key=True)
    source: Mapped[str] = mapped_column(ForeignKey("sources.name", ondelete="CASCADE"))
    phase: Mapped[str]
    """A :class:`~headrace.control.runs.repository.Phase`."""
    begun_ms: Mapped[int]
    """When it began to read; until then, when it was asked for. What was noted later is not proven by it."""
    plan: Mapped[dict[str, Any]]
    """``topics``, ``sinks``, ``marks`` and ``ends`` (topic → offsets by partition), and how it is to go."""
    who: Mapped[str] = mapped_column(server_default="")
    why: Mapped[str] = mapped_column(server_default="")
    wanted: Mapped[str] = mapped_column(server_default="")
    """What a person has asked of it since: ``pause``, ``abort``, or nothing."""
    reason: Mapped[str] = mapped_column(server_default="")
    """What it waits for, or why it ended as it did."""
    error: Mapped[dict[str, Any] | None]
    """Code, message, hint and kind of the error that ended it."""
    asked_ms: Mapped[int | None]
    ended_ms: Mapped[int | None]
    counts: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    """``read``: topic → rows; ``written``: sink → records; ``swept``: sink → table → rows removed."""


class RecoveryEntry(Base):
    """A recovery of a source that has begun, so that an interrupted command can go on."""

    __tablename__ = "recoveries"

    source: Mapped[str] = mapped_column(ForeignKey("sources.name", ondelete="CASCADE"), primary_key=True)
    phase: Mapped[str]
    begun_ms: Mapped[int]
    plan: Mapped[dict[str, Any]]


class JournalEntry(Base):
    """Something that was done, for people who ask later."""

    __tablename__ = "journal"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at_ms: Mapped[int]
    subject: Mapped[str]
    event: Mapped[str]
    detail: Mapped[dict[str, Any]]


class DeadLetterEntry(Base):
    """A rejected record, found in a dead letter file; the raw bytes are only there."""

    __tablename__ = "dead_letters"
    __table_args__ = (UniqueConstraint("sink", "topic", "epoch", "partition", "offset"),)

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    sink: Mapped[str] = mapped_column(index=True)
    topic: Mapped[str]
    epoch: Mapped[int]
    partition: Mapped[int]
    offset: Mapped[int]
    table: Mapped[str]
    row: Mapped[str | None]
    code: Mapped[str]
    reason: Mapped[str]
    at_ms: Mapped[int]
    file: Mapped[str]
    state: Mapped[str] = mapped_column(index=True)
    decided_ms: Mapped[int | None]


class DeadLetterFile(Base):
    """A dead letter file whose letters are known, as it was when it was read."""

    __tablename__ = "dead_letter_files"

    sink: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    stamp: Mapped[int]


class WatchEntry(Base):
    """What the last look at a source's database saw, for the next one to compare with."""

    __tablename__ = "watched"

    source: Mapped[str] = mapped_column(ForeignKey("sources.name", ondelete="CASCADE"), primary_key=True)
    facts: Mapped[dict[str, Any]]
    others: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    """``tables``: those of the captured schemas that are not captured, as schema and name."""
    beats: Mapped[int | None]
    """Up to where the heartbeats were read."""
    emptied: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    """See :class:`~headrace.control.emptied.Emptied`."""
    unattended: Mapped[dict[str, Any] | None]
    """See :func:`~headrace.control.unattended.moved_on`."""
    at_ms: Mapped[int]


class EndEntry(Base):
    """Up to where the topic of a table was seen to go."""

    __tablename__ = "ends"

    source: Mapped[str] = mapped_column(ForeignKey("sources.name", ondelete="CASCADE"), primary_key=True)
    topic: Mapped[str] = mapped_column(primary_key=True)
    topic_id: Mapped[str]
    """Kafka's identity of the topic that was seen."""
    ends: Mapped[dict[str, Any]]
    """Partition → the offset after its last record, the highest that was seen."""


class VerdictEntry(Base):
    """Something that was found wrong with a table, kept until it is proven to be over."""

    __tablename__ = "verdicts"

    source: Mapped[str] = mapped_column(ForeignKey("sources.name", ondelete="CASCADE"), primary_key=True)
    topic: Mapped[str] = mapped_column(primary_key=True)
    sink: Mapped[str] = mapped_column(primary_key=True)
    """Empty when every sink of the source is meant."""
    code: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]
    """A :class:`~headrace.control.verdict.State`: catching_up, degraded, failed or resync_required."""
    reason: Mapped[str]
    remedy: Mapped[str]
    first_ms: Mapped[int]
    last_ms: Mapped[int]
    """When it was last seen to be so. Only a run that began later proves that it is over."""
    healed: Mapped[dict[str, Any]]
    """Sink → start of the run that made its rows right, while other sinks still need one."""
