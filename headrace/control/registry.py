"""What is registered, in one private SQLite file: sources, sinks, epochs, resnapshots, a journal."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event, func, inspect, select, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, NullPool
from sqlalchemy.schema import CreateColumn

from headrace.control.entries import (
    Adding,
    Base,
    DeadLetterEntry,
    DeadLetterFile,
    JournalEntry,
    RecoveryEntry,
    ResnapshotEntry,
    SinkEntry,
    SourceEntry,
    SourceTableEntry,
    TopicEntry,
    VerdictEntry,
)
from headrace.model.errors import EnvironmentError_, UsageError
from headrace.model.pasted import word

__all__ = [
    "Adding",
    "DeadLetterEntry",
    "DeadLetterFile",
    "JournalEntry",
    "Registry",
    "ResnapshotEntry",
    "SinkEntry",
    "SourceEntry",
    "SourceTableEntry",
    "TopicEntry",
    "VerdictEntry",
    "epoch_by_clock",
    "living",
    "moment",
    "now_ms",
]

_VERSION = 13
_OLDER = tuple(range(1, _VERSION))
"""Versions that lack only tables, which are made, and columns, which are added."""
_READING = "reading"
_LARGEST = 2**63 - 1
"""The largest number that SQLite knows."""
_EPOCH_BEGINNING_S = 1_767_225_600  # 2026-01-01
_EPOCH_UNIT_S = 3_600


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
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _make_private(path)
        except OSError as error:
            raise self._unusable(error.strerror or error) from error
        self._engine: Engine = create_engine(
            f"sqlite:///{path}",
            connect_args={"timeout": 30},
            poolclass=NullPool,
            json_deserializer=self._from_json,
        )
        event.listen(self._engine, "connect", _configure)
        # One writer at a time, also for what is decided by a read before it, such as the next epoch.
        event.listen(self._engine, "begin", _begin)
        self._sessions = sessionmaker(self._engine, expire_on_commit=False)
        reading = self._engine.execution_options(**{_READING: True})
        self._readings = sessionmaker(reading, expire_on_commit=False)
        with self.reading() as session:
            if session.execute(text("PRAGMA user_version")).scalar() == _VERSION:
                return
        with self.begin() as session:
            version = session.execute(text("PRAGMA user_version")).scalar()
            fresh = version == 0 and not inspect(session.connection()).get_table_names()
            if fresh or version in _OLDER:
                Base.metadata.create_all(session.connection())
                _add_columns(session)
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
            raise self._unusable(error.orig) from error

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a transaction that changes nothing: it waits for nobody, and nobody waits for it."""
        try:
            with self._readings() as session, session.begin():
                yield session
        except DatabaseError as error:
            raise self._unusable(error.orig) from error

    def _from_json(self, value: str) -> object:
        try:
            return json.loads(value)
        except (ValueError, TypeError) as error:
            raise self._unusable(f"a value is damaged ({error})") from error

    def _unusable(self, why: object) -> EnvironmentError_:
        return EnvironmentError_(
            f"The registry {self._path} cannot be used: {why}",
            code="REGISTRY_UNUSABLE",
            hint=_way_out(self._path, str(why).lower()),
        )

    def source(self, name: str) -> SourceEntry:
        """Return a source.

        Raises:
            UsageError: When there is none of that name (``SOURCE_UNKNOWN``).
        """
        with self.reading() as session:
            found = session.get(SourceEntry, name)
        if found is None:
            known = ", ".join(entry.name for entry in self.sources()) or "none"
            raise UsageError(
                f"There is no source “{name}”.", code="SOURCE_UNKNOWN", hint=f"Registered: {known}."
            )
        return found

    def sources(self) -> list[SourceEntry]:
        """Return all sources by name."""
        with self.reading() as session:
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
            hint=f"Use --source with one of: {names}." if known else "headrace source add NAME env:URL",
        )

    def sink(self, name: str) -> SinkEntry:
        """Return a sink.

        Raises:
            UsageError: When there is none of that name (``SINK_UNKNOWN``).
        """
        with self.reading() as session:
            found = session.get(SinkEntry, name)
        if found is None:
            known = ", ".join(entry.name for entry in self.sinks()) or "none"
            raise UsageError(f"There is no sink “{name}”.", code="SINK_UNKNOWN", hint=f"Registered: {known}.")
        return found

    def sinks(self, source: str | None = None) -> list[SinkEntry]:
        """Return all sinks by name, or those of one source."""
        query = select(SinkEntry).order_by(SinkEntry.name)
        with self.reading() as session:
            return list(session.scalars(query if source is None else query.where(SinkEntry.source == source)))

    def incomplete(self, sink: str, firsts: Mapping[str, int]) -> None:
        """Note, as of now, that rows of some topics older than an offset lack something at the sink."""
        with self.begin() as session:
            found = session.get_one(SinkEntry, sink)
            at = moment(session, found.source)
            found.incomplete = {**found.incomplete, **firsts}
            found.incomplete_ms = {**found.incomplete_ms, **dict.fromkeys(firsts, at)}

    def completed(self, sink: str, topic: str, begun_ms: int) -> None:
        """Note that a run which began at ``begun_ms`` has given the sink every row of the topic's table.

        What was found lacking after it began stays lacking: it has read some rows before.
        """
        with self.begin() as session:
            found = session.get(SinkEntry, sink)
            if found is not None and found.incomplete_ms.get(topic, 0) < begun_ms:
                found.incomplete = {name: first for name, first in found.incomplete.items() if name != topic}

    def moment(self, source: str) -> int:
        """Return a time for what begins now with a source, see :func:`moment`."""
        with self.begin() as session:
            return moment(session, source)

    def heard(self, source: SourceEntry, offset: int, *, in_gap: bool = False) -> None:
        """Note up to where the connector's notifications of a source are read, ``in_gap`` also then."""
        with self.begin() as session:
            found = living(session, source)
            if found is not None and (in_gap or not found.gap):
                found.heard = offset

    def next_epoch(self, topic: str, *, above: int | None = None) -> int:
        """Return an epoch above every earlier one of the topic, and above ``above``; remember it.

        Epochs count hours since 2026, and at least one up, so that a registry that was lost does
        not hand out small ones again, which would make every new change older than what sinks hold.
        Within one hour only ``above`` tells, see :mod:`headrace.control.epochs`.
        """
        by_clock = epoch_by_clock()
        with self.begin() as session:
            known = session.get(TopicEntry, topic)
            earlier = [epoch for epoch in (above, known.epoch if known else None) if epoch is not None]
            epoch = max([by_clock, *(one + 1 for one in earlier)])
            session.merge(TopicEntry(topic=topic, epoch=epoch))
            return epoch

    def epochs_begin_above(self, topic: str, epoch: int) -> None:
        """Give the topic only epochs above ``epoch`` from now on."""
        with self.begin() as session:
            known = session.get(TopicEntry, topic)
            session.merge(TopicEntry(topic=topic, epoch=max(epoch, known.epoch if known else 0)))

    def gap(self, source: SourceEntry, reason: str, *, anew: bool = False) -> None:
        """Remember that changes are missing from the source's history, for good.

        Args:
            source: The source, as it was when that was seen.
            reason: Why.
            anew: Whether it is another gap than the one that is known: a recovery under way is too old then.
        """
        with self.begin() as session:
            found = living(session, source)
            if found is not None and (anew or not found.gap):
                found.gap = reason
        if found is not None:
            self.note(f"source {source.name}", "gap", reason=reason)

    def journal(self, subject: str | None = None, *, limit: int = 100) -> list[JournalEntry]:
        """Return the newest lines of the journal, oldest first, of all or of one subject: ``source shop``."""
        query = select(JournalEntry).order_by(JournalEntry.id.desc()).limit(min(limit, _LARGEST))
        with self.reading() as session:
            found = session.scalars(
                query if subject is None else query.where(JournalEntry.subject == subject)
            ).all()
        return list(reversed(found))

    def note(self, subject: str, what: str, **detail: Any) -> None:
        """Write a line to the journal."""
        with self.begin() as session:
            session.add(JournalEntry(at_ms=now_ms(), subject=subject, event=what, detail=detail))


def moment(session: Session, source: str) -> int:
    """Return the time, Unix milliseconds, or a later one: it is after all that is noted of a source.

    What is found wrong and what is read anew are put in order by these times. By those of a clock that was
    set back a run would heal what was found after it had begun.
    """
    noted = [
        session.scalar(select(func.max(VerdictEntry.last_ms)).where(VerdictEntry.source == source)),
        session.scalar(select(func.max(ResnapshotEntry.begun_ms)).where(ResnapshotEntry.source == source)),
    ]
    for times in session.scalars(select(SinkEntry.incomplete_ms).where(SinkEntry.source == source)):
        noted += times.values()
    if (recovery := session.get(RecoveryEntry, source)) is not None:
        noted.append(recovery.plan.get("reading_ms"))
    return max([now_ms(), *(int(at) + 1 for at in noted if at is not None)])


def living(session: Session, source: SourceEntry) -> SourceEntry | None:
    """Return what is registered of a source now; None when that is another life than the one given.

    Whoever looks at a source takes a while. What it saw must not fall upon a namesake that was added
    meanwhile, nor upon topics that were made anew.
    """
    found = session.get(SourceEntry, source.name)
    return found if found is not None and found.is_life_of(source) else None


def _way_out(path: Path, why: str) -> str:
    """Return what helps against what the system or SQLite says of the registry at ``path``."""
    file, folder = word(str(path)), word(str(path.parent))
    if "locked" in why:
        return f"Another process holds it: fuser -v {file}"
    if "full" in why or "space" in why or "quota" in why:
        return f"Free some space: df -h {folder}"
    if any(
        word in why for word in ("malformed", "not a database", "damaged", "no such table", "no such column")
    ):
        return (
            f"Put a backup of it in its place. Without one: mkdir -p {folder}/damaged && mv {file}*"
            f" {folder}/damaged/ -- then `headrace lag` names what is to be added again."
        )
    if "i/o" in why or "input/output" in why:
        return "The disk refuses; the system's log says more: dmesg"
    return f"See who may write there: ls -ld {folder} {file}"


def epoch_by_clock() -> int:
    """Return the least epoch that is given at this hour."""
    return max(0, int(time.time()) - _EPOCH_BEGINNING_S) // _EPOCH_UNIT_S


def _make_private(path: Path) -> None:
    """Make an empty file that only its owner may read, unless there is one, without ever opening one.

    A process that closes a file loses its locks on it, those of its open connections too: another process
    would take itself for the last user and delete the write-ahead log under them
    (https://www.sqlite.org/howtocorrupt.html, section 2.2).
    """
    if not path.exists():
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        os.close(handle)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links; nobody can have a lock on what is made here
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        finally:
            Path(draft).unlink()
    path.chmod(0o600)


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get(_READING):
        connection.exec_driver_sql("PRAGMA query_only = ON")  # each transaction has a connection of its own
        connection.exec_driver_sql("BEGIN")
    else:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _configure(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions are begun above, not by the driver's own guess
    cursor = connection.cursor()
    # FULL: an epoch or a verdict that a power cut takes back would be one that was never given.
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "busy_timeout = 30000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _add_columns(session: Session) -> None:
    """Add the columns that an older version lacks; each is nullable or has a default of the database's."""
    connection = session.connection()
    known = inspect(connection)
    for table in Base.metadata.sorted_tables:
        there = {column["name"] for column in known.get_columns(table.name)}
        for column in table.columns:
            if column.name not in there:
                kind = CreateColumn(column).compile(dialect=connection.dialect)
                session.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {kind}"))
