"""The lake sink: the protocol's words, spoken by one writer per table."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from headrace.model.change import Change
from headrace.model.claim import Claim
from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.finding import Finding, Severity
from headrace.model.key import Key
from headrace.model.outcome import Outcome
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema
from sinks.base import Place, Progress, Stored, Target
from sinks.delta.claims import Claims
from sinks.delta.config import ASIDE, LakeConfig, data_path, directory_name, tombstones_path
from sinks.delta.decode import decode
from sinks.delta.files import conform, live_parts
from sinks.delta.index import KeyIndex
from sinks.delta.log import commit_path
from sinks.delta.progress import ProgressFile, Witness
from sinks.delta.replaced import Replaced
from sinks.delta.shape import shape_of
from sinks.delta.table import LakeTable
from sinks.delta.tombstones import Tombstones
from sinks.delta.writer import TableWriter

__all__ = ["DeltaSink"]

_LITTLE_SPACE = 1 << 30


class DeltaSink:
    """Mirrors each table as a typed Delta table at ``path/schema/table``, clean for any Delta reader.

    Applying is safe from several threads. Beside the data, under ``path/_headrace``, are the versions of
    deleted rows and the sink's progress.
    """

    kind: str = "delta"
    placement: str = "driver"
    rows_at_once: int = 20_000
    Config: ClassVar[type[LakeConfig]] = LakeConfig

    def __init__(self, name: str, config: LakeConfig) -> None:
        self.name = name
        self.config = config
        self.pace_s = config.commit_seconds
        self._root = config.path
        self._index = KeyIndex(config.index_bytes)
        self._writers: dict[TableId, TableWriter] = {}
        self._lock = threading.Lock()
        self._unsettled: set[TableId] = set()
        self._seen: dict[Path, tuple[str, int]] = {}
        self._claims = Claims(self._root / ASIDE / "claims")
        self._progress = ProgressFile(
            self._root / ASIDE / f"progress-{directory_name(name)}.json", self._root
        )

    def check(self) -> list[Finding]:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._root) as probe:
                probe.write(b"probe")
            free = shutil.disk_usage(self._root).free
        except OSError as error:
            message = f"The lake's directory {self._root} cannot be written: {error.strerror}."
            return [
                Finding(
                    Severity.ERROR, "DELTA_PATH", message, "Give the sink a directory this user may write."
                )
            ]
        findings = [Finding(Severity.OK, "DELTA_PATH", f"The lake's directory {self._root} can be written.")]
        owner = self._owner()
        if owner not in (None, self.name):
            message = f"The lake's directory {self._root} belongs to the sink “{owner}”."
            findings.append(
                Finding(Severity.ERROR, "DELTA_PATH_TAKEN", message, "Give each sink its own directory.")
            )
        if free < _LITTLE_SPACE:
            message = f"Only {free >> 20} MiB are free at {self._root}."
            findings.append(
                Finding(Severity.WARNING, "DELTA_LITTLE_SPACE", message, "Free some space first.")
            )
        return findings

    def _owner(self) -> str | None:
        try:
            return (self._root / ASIDE / "owner").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def _own(self) -> None:
        owner = self._root / ASIDE / "owner"
        owner.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Named before it is there, so that nobody ever reads an unsigned claim.
            with tempfile.NamedTemporaryFile("w", dir=owner.parent, encoding="utf-8") as claim:
                claim.write(self.name)
                claim.flush()
                os.fchmod(claim.fileno(), 0o644)
                os.link(claim.name, owner)
        except FileExistsError:
            if (found := self._owner()) != self.name:
                raise SinkError(
                    f"The lake's directory {self._root} belongs to the sink “{found}”.",
                    code="DELTA_PATH_TAKEN",
                    hint="Give each sink its own directory.",
                ) from None

    def prepare(self, schema: TableSchema) -> None:
        try:
            self._own()
            writer = self._writer(schema.table)
            with writer.lock:
                writer.table.create(shape_of(schema).arrow, vectors=self.config.deletion_vectors)
                writer.replaced.sweep(writer.table.files)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> SinkUnavailable:
        return SinkUnavailable(
            f"The lake's directory {self._root} cannot be written: {error.strerror or error}.",
            code="DELTA_FILE_SYSTEM",
            hint="Check free space and permissions.",
        )

    def claims(self, schemas: Sequence[TableSchema]) -> dict[TableId, Claim]:
        try:
            standing = {schema.table: self._claims.standing(schema.table) for schema in schemas}
        except OSError as error:
            raise self._unwritable(error) from error
        return {table: claim for table, claim in standing.items() if claim is not None}

    def claim(
        self, schemas: Sequence[TableSchema], claim: Claim, instead_of: Mapping[TableId, Claim]
    ) -> list[TableId]:
        tables = [schema.table for schema in schemas]
        try:
            return [t for t in tables if not self._claims.put(t, claim, instead_of.get(t))]
        except OSError as error:
            raise self._unwritable(error) from error

    def _writer(self, table: TableId) -> TableWriter:
        with self._lock:
            if table not in self._writers:
                path = data_path(self._root, table)
                config = self.config
                self._writers[table] = TableWriter(
                    LakeTable(path, str(table)),
                    self._index,
                    Tombstones(tombstones_path(self._root, table), config.tombstone_hours * 3600),
                    Replaced(path, config.keep_replaced_seconds, config.keep_replaced_bytes),
                    config.deletion_vectors,
                )
            return self._writers[table]

    def target(self, schema: TableSchema) -> Target:
        facts: dict[str, object] = {"path": str(data_path(self._root, schema.table))}
        if renamed := shape_of(schema).renamed:
            facts["renamed"] = renamed
        return Target(schema.table, facts)

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        if not changes:
            return []
        outcomes = self._writer(schema.table).apply(shape_of(schema), changes)
        with self._lock:
            self._unsettled.add(schema.table)
        return outcomes

    def rows(self, schema: TableSchema, keys: Sequence[Key]) -> dict[Key, Stored]:
        by_id = {key.id: key for key in keys}
        shape = shape_of(schema)
        stored = conform(self._writer(schema.table).stored(list(by_id)), shape.arrow)
        return {by_id[found.key]: found for found in decode(shape, stored)}

    def truncate(self, schema: TableSchema, position: Position) -> int:
        removed = self._writer(schema.table).truncate(position.floor, position.version)
        with self._lock:
            self._unsettled.add(schema.table)
        return removed

    def maintain(self, seconds: float) -> bool:
        """Tidy tables in an idle moment, for about ``seconds`` at most; return whether there is more to do.

        Many small files become one, hidden rows go, old tombstones and files that no reader needs are
        deleted. Where there is nothing to do it costs a look at each table's log. Readers and other
        writers are not disturbed: a table somebody writes to is left for later, replaced files stay as
        long as configured, and a process that dies in between leaves what a restart sweeps.

        Raises:
            SinkUnavailable: The disk refuses.
        """
        until = time.monotonic() + seconds
        with self._lock:
            writers = sorted(self._writers.values(), key=lambda writer: writer.tidied)
        for writer in writers:
            go_on = True
            while go_on:
                if time.monotonic() >= until:
                    return True
                go_on = self._tidied(writer, until)
        return False

    @staticmethod
    def _tidied(writer: TableWriter, until: float) -> bool:
        """Tidy a table a little; return whether to go on with it."""
        try:
            return writer.tidy(until)
        except SinkError as error:
            if error.code == "DELTA_TABLE_MISSING":
                return False  # dropped meanwhile; who writes to it is told
            raise

    def progress(self, places: Collection[Place] | None = None) -> Progress:
        stored = self._progress.read()
        named = {topic for topic, _ in places} if places is not None else None
        topics = {topic for topic in stored["offsets"] if named is None or topic in named}
        found = self._progress.offsets(t for t in topics if self._still_there(stored["tables"].get(t)))
        return {place: offset for place, offset in found.items() if places is None or place in places}

    def _still_there(self, table: dict[str, object] | None) -> bool:
        """Return whether a table holds at least what it held when its progress was settled."""
        if table is None:
            return True
        path, version = self._root / str(table["path"]), int(str(table["version"]))
        if self._seen.get(path) == (table["id"], version) and commit_path(path, version).exists():
            return True
        lake = LakeTable(path, "")
        try:
            lake.refresh()
        except SinkError:
            return False
        if lake.identity != table["id"] or lake.version < version:
            self.close()  # what is remembered of its files is of a later time
            return False
        self._note_seen([Witness(path, str(table["id"]), version, frozenset())])
        return True

    def _note_seen(self, witnesses: Iterable[Witness]) -> None:
        for witness in witnesses:
            self._seen[witness.path] = (witness.identity, witness.version)

    def settle(self, progress: Progress) -> None:
        with self._lock:
            tables, self._unsettled = self._unsettled, set()
        try:
            witnesses = [self._witness(self._writer(table)) for table in tables]
            self._progress.settle(progress, witnesses)
            self._note_seen(witnesses)
        except OSError as error:
            with self._lock:
                self._unsettled |= tables
            raise SinkUnavailable(
                f"The lake's progress cannot be written: {error.strerror or type(error).__name__}.",
                code="DELTA_FILE_SYSTEM",
                hint=f"Check free space and permissions of {self._root}.",
            ) from error

    @staticmethod
    def _witness(writer: TableWriter) -> Witness:
        with writer.lock:
            table = writer.table
            table.make_durable()
            return Witness(table.path, table.identity, table.version, frozenset(writer.topics))

    def scan(self, schema: TableSchema) -> Iterator[Stored]:
        shape = shape_of(schema)
        lake = LakeTable(data_path(self._root, schema.table), str(schema.table))
        lake.refresh()
        try:
            for file in lake.files.values():
                for part in live_parts(lake.path, file, lake.schema):
                    yield from decode(shape, conform(part, shape.arrow))
        except FileNotFoundError as error:
            raise SinkUnavailable(
                f"The files of {schema.table} were replaced while they were read.",
                code="DELTA_SCAN_OVERTAKEN",
                hint="Scan again.",
            ) from error

    def drop(self, schema: TableSchema) -> None:
        # Names are escaped, so the path is always two directories below the root.
        path = data_path(self._root, schema.table)
        tombstones = tombstones_path(self._root, schema.table)
        writer = self._writer(schema.table)
        with writer.lock, self._lock:
            if path.is_dir():
                shutil.rmtree(path)
            tombstones.unlink(missing_ok=True)
            for directory in (path.parent, tombstones.parent):
                if directory.is_dir() and not any(directory.iterdir()):
                    directory.rmdir()
            self._writers.pop(schema.table, None)
            self._unsettled.discard(schema.table)
            self._progress.forget_table(path)
            self._claims.remove(schema.table)
            if self._root.is_dir() and [entry.name for entry in self._root.iterdir()] == [ASIDE]:
                # The last table is gone: the directory belongs to no sink any more.
                (self._root / ASIDE / "owner").unlink(missing_ok=True)

    def forget(self, topics: Collection[str]) -> None:
        self._progress.forget(topics)

    def close(self) -> None:
        with self._lock:
            self._writers.clear()
            self._index = KeyIndex(self.config.index_bytes)
