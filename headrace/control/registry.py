"""What is registered, in one private SQLite file: sources, sinks, epochs, resnapshots, a journal."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    ForeignKey,
    UniqueConstraint,
    create_engine,
    event,
    inspect,
    select,
    text,
)
from sqlalchemy.engine import Engine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from headrace.model.errors import EnvironmentError_, UsageError
from headrace.model.schema import TableSchema

__all__ = [
    "DeadLetterEntry",
    "DeadLetterFile",
    "JournalEntry",
    "Registry",
    "ResnapshotEntry",
    "SinkEntry",
    "SourceEntry",
    "SourceTableEntry",
    "TopicEntry",
]

_VERSION = 3
_OLDER = (1, 2)
"""Versions that lack only tables, which are made, and columns, which are added."""
_ADDED = ("sinks", "on_schema_change", "VARCHAR NOT NULL DEFAULT 'lenient'")
_EPOCH_BEGINNING_S = 1_767_225_600  # 2026-01-01
_EPOCH_UNIT_S = 3_600


class _Base(DeclarativeBase):
    type_annotation_map = {dict[str, Any]: JSON}  # noqa: RUF012 - SQLAlchemy's own declaration


class SourceEntry(_Base):
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
    tables: Mapped[list[SourceTableEntry]] = relationship(
        cascade="all, delete-orphan", order_by="SourceTableEntry.place", lazy="selectin"
    )

    @property
    def partitions(self) -> int:
        """Return how many partitions each table's topic was made with."""
        return int(self.settings.get("partitions", 1))


class SourceTableEntry(_Base):
    """One captured table."""

    __tablename__ = "source_tables"

    source: Mapped[str] = mapped_column(ForeignKey("sources.name"), primary_key=True)
    topic: Mapped[str] = mapped_column(primary_key=True)
    place: Mapped[int]
    topic_id: Mapped[str]
    """Kafka's identity of the topic, as it was when the epoch began."""
    epoch: Mapped[int]
    table: Mapped[dict[str, Any]]

    @property
    def schema(self) -> TableSchema:
        """Return the table's schema as the catalogue told it."""
        return TableSchema.from_dict(self.table)


class SinkEntry(_Base):
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
    on_schema_change: Mapped[str]
    """A :class:`~headrace.config.pipeline.SchemaPolicy`."""
    created_ms: Mapped[int]


class TopicEntry(_Base):
    """The last epoch given to a topic; it outlives the source."""

    __tablename__ = "topics"

    topic: Mapped[str] = mapped_column(primary_key=True)
    epoch: Mapped[int]


class ResnapshotEntry(_Base):
    """One resnapshot, so that an interrupted command can go on."""

    __tablename__ = "resnapshots"

    id: Mapped[str] = mapped_column(primary_key=True)
    source: Mapped[str] = mapped_column(ForeignKey("sources.name", ondelete="CASCADE"))
    phase: Mapped[str]
    begun_ms: Mapped[int]
    plan: Mapped[dict[str, Any]]


class JournalEntry(_Base):
    """Something that was done, for people who ask later."""

    __tablename__ = "journal"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at_ms: Mapped[int]
    subject: Mapped[str]
    event: Mapped[str]
    detail: Mapped[dict[str, Any]]


class DeadLetterEntry(_Base):
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


class DeadLetterFile(_Base):
    """A dead letter file whose letters are known, as it was when it was read."""

    __tablename__ = "dead_letter_files"

    sink: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    stamp: Mapped[int]


def now_ms() -> int:
    """Return the time in Unix milliseconds."""
    return int(time.time() * 1000)


class Registry:
    """The registry at ``path``; created, private to its owner, on first use.

    Raises:
        EnvironmentError_: From every call, when the file cannot be used (``REGISTRY_UNUSABLE``,
            ``REGISTRY_VERSION``).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
        self._engine: Engine = create_engine(
            f"sqlite:///{path}", connect_args={"timeout": 30}, poolclass=NullPool
        )
        event.listen(self._engine, "connect", _configure)
        # One writer at a time, also for what is decided by a read before it, such as the next epoch.
        event.listen(self._engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        self._sessions = sessionmaker(self._engine, expire_on_commit=False)
        with self.begin() as session:
            version = session.execute(text("PRAGMA user_version")).scalar()
            fresh = version == 0 and not inspect(session.connection()).get_table_names()
            if fresh or version in _OLDER:
                _Base.metadata.create_all(session.connection())
                _add_column(session, *_ADDED)
                session.execute(text(f"PRAGMA user_version = {_VERSION}"))
            elif version != _VERSION:
                raise EnvironmentError_(
                    f"The registry {path} was written by another version of headrace.",
                    code="REGISTRY_VERSION",
                    hint="Use that version; or begin anew in another home.",
                )

    @contextmanager
    def begin(self) -> Iterator[Session]:
        """Open a transaction; what is read stays readable after it."""
        try:
            with self._sessions() as session, session.begin():
                yield session
        except DatabaseError as error:
            raise EnvironmentError_(
                f"The registry {self._path} cannot be used: {error.orig}",
                code="REGISTRY_UNUSABLE",
                hint="Check free space and rights of its directory.",
            ) from error

    def source(self, name: str) -> SourceEntry:
        """Return a source.

        Raises:
            UsageError: When there is none of that name (``SOURCE_UNKNOWN``).
        """
        with self.begin() as session:
            found = session.get(SourceEntry, name)
        if found is None:
            known = ", ".join(entry.name for entry in self.sources()) or "none"
            raise UsageError(
                f"There is no source “{name}”.", code="SOURCE_UNKNOWN", hint=f"Registered: {known}."
            )
        return found

    def sources(self) -> list[SourceEntry]:
        """Return all sources by name."""
        with self.begin() as session:
            return list(session.scalars(select(SourceEntry).order_by(SourceEntry.name)))

    def only_source(self) -> SourceEntry:
        """Return the one source there is.

        Raises:
            UsageError: When there is none or several (``SOURCE_UNNAMED``).
        """
        known = self.sources()
        if len(known) == 1:
            return known[0]
        names = ", ".join(entry.name for entry in known)
        raise UsageError(
            "Several sources are registered; say which." if known else "No source is registered yet.",
            code="SOURCE_UNNAMED",
            hint=f"Use --source with one of: {names}." if known else "headrace source add NAME postgres://…",
        )

    def sink(self, name: str) -> SinkEntry:
        """Return a sink.

        Raises:
            UsageError: When there is none of that name (``SINK_UNKNOWN``).
        """
        with self.begin() as session:
            found = session.get(SinkEntry, name)
        if found is None:
            known = ", ".join(entry.name for entry in self.sinks()) or "none"
            raise UsageError(f"There is no sink “{name}”.", code="SINK_UNKNOWN", hint=f"Registered: {known}.")
        return found

    def sinks(self, source: str | None = None) -> list[SinkEntry]:
        """Return all sinks by name, or those of one source."""
        query = select(SinkEntry).order_by(SinkEntry.name)
        with self.begin() as session:
            return list(session.scalars(query if source is None else query.where(SinkEntry.source == source)))

    def completed(self, sink: str, topic: str) -> None:
        """Remember that the sink has every row of the topic's table, whatever the topic has lost."""
        with self.begin() as session:
            found = session.get_one(SinkEntry, sink)
            found.incomplete = {name: first for name, first in found.incomplete.items() if name != topic}

    def reread(self, source: str) -> dict[str, tuple[list[int], list[int]]]:
        """Return topic → marks and ends, by partition, of its last resnapshot that was read whole.

        From the marks on the topic tells of every live row; before them, also of rows that are gone
        without a record of their end.
        """
        query = select(ResnapshotEntry).where(
            ResnapshotEntry.source == source, ResnapshotEntry.phase.in_(("sweeping", "completed"))
        )
        with self.begin() as session:
            runs = session.scalars(query.order_by(ResnapshotEntry.begun_ms)).all()
        return {
            topic: (_each(marks), _each(run.plan["ends"][topic]))
            for run in runs
            for topic, marks in run.plan["marks"].items()
        }

    def next_epoch(self, topic: str) -> int:
        """Return an epoch above every earlier one of the topic, and remember it.

        Epochs count hours since 2026, and at least one up, so that a registry that was lost does
        not hand out small ones again, which would make every new change older than what sinks hold.
        """
        by_clock = max(0, int(time.time()) - _EPOCH_BEGINNING_S) // _EPOCH_UNIT_S
        with self.begin() as session:
            known = session.get(TopicEntry, topic)
            if known is None:
                known = TopicEntry(topic=topic, epoch=by_clock)
                session.add(known)
            else:
                known.epoch = max(known.epoch + 1, by_clock)
            return known.epoch

    def loaded(self, name: str) -> None:
        """Remember that the source's initial snapshot is complete."""
        with self.begin() as session:
            found = session.get(SourceEntry, name)
            if found is not None and found.loaded_ms is None:
                found.loaded_ms = now_ms()

    def gap(self, name: str, reason: str) -> None:
        """Remember that changes are missing from the source's history, for good."""
        with self.begin() as session:
            found = session.get(SourceEntry, name)
            if found is not None and not found.gap:
                found.gap = reason
        self.note(f"source {name}", "gap", reason=reason)

    def journal(self, subject: str | None = None, *, limit: int = 100) -> list[JournalEntry]:
        """Return the newest lines of the journal, oldest first, of all or of one subject: ``source shop``."""
        query = select(JournalEntry).order_by(JournalEntry.id.desc()).limit(limit)
        with self.begin() as session:
            found = session.scalars(
                query if subject is None else query.where(JournalEntry.subject == subject)
            ).all()
        return list(reversed(found))

    def note(self, subject: str, what: str, **detail: Any) -> None:
        """Write a line to the journal."""
        with self.begin() as session:
            session.add(JournalEntry(at_ms=now_ms(), subject=subject, event=what, detail=detail))


def _configure(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions are begun above, not by the driver's own guess
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "busy_timeout = 30000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _each(told: int | list[int]) -> list[int]:
    """Return offsets by partition; one alone is of a topic that has one."""
    return [told] if isinstance(told, int) else told


def _add_column(session: Session, table: str, column: str, kind: str) -> None:
    if column not in {known["name"] for known in inspect(session.connection()).get_columns(table)}:
        session.execute(text(f"ALTER TABLE {table} ADD COLUMN {column} {kind}"))
