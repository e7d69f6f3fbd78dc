"""A Delta table seen by its one writer: the files it consists of, and commits that replace some of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake._internal import RemoveAction  # the public module does not name it among its exports
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from headrace.model.errors import SinkError
from sinks.delta.evolve import evolve
from sinks.delta.files import DataFile, count_rows, sync_all
from sinks.delta.log import Conflict, append, commit_path, vectors_of

__all__ = ["LakeTable"]

_CHECKPOINT_INTERVAL = 100
_CONFIGURATION = {
    # A reader that opens the table reads one checkpoint and at most this many small files of the log.
    "delta.checkpointInterval": str(_CHECKPOINT_INTERVAL),
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}
_VECTORS = "delta.enableDeletionVectors"
_KNOWN_FEATURES = {"appendOnly", "deletionVectors", "invariants", "timestampNtz", "variantType"}
"""Features of a table that ask nothing more of a writer of whole files than what it does here."""


@dataclass(slots=True)
class LakeTable:
    """One Delta table on disk.

    Args:
        path: Its directory.
        name: What it mirrors; kept in the table, so that two tables never share a directory unseen.
        files: Path → file, of the version seen last.
        schema: Its columns.
        version: That version.
        identity: An id that differs between a table and one created in its place later.
    """

    path: Path
    name: str
    files: dict[str, DataFile] = field(default_factory=dict)
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    version: int = -1
    identity: str = ""
    _delta: DeltaTable | None = None
    _plain: bool = False
    _mark: tuple[int, int] | None = None
    _unforced: set[Path] = field(default_factory=set)

    @property
    def delta(self) -> DeltaTable:
        """Return the open table, at the version seen last or a later one.

        Raises:
            SinkError: ``DELTA_TABLE_MISSING``: there is none that can be read.
        """
        if self._delta is None or self._delta.version() < self.version:
            try:
                self._delta = DeltaTable(str(self.path))
            except DeltaError as error:
                raise SinkError(
                    f"There is no readable Delta table at {self.path}: {type(error).__name__}.",
                    code="DELTA_TABLE_MISSING",
                    hint="If it was removed on purpose, run a resnapshot of the table into this sink.",
                ) from error
        return self._delta

    def create(self, schema: pa.Schema, *, vectors: bool) -> None:
        """Create the table empty, or open the one that is there and bring its columns up to date.

        Raises:
            SinkError: ``DELTA_PATH_TAKEN``: the directory holds another table; ``DELTA_COLUMN_TYPE``: it
                holds this one with columns of other types.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        wanted = _CONFIGURATION | ({_VECTORS: "true"} if vectors else {})
        if not DeltaTable.is_deltatable(str(self.path)):
            DeltaTable.create(
                str(self.path),
                schema=Schema.from_arrow(schema),
                mode="ignore",
                name=self.name,
                configuration=wanted,
            )
        self.refresh()
        about = self.delta.metadata()
        if about.name != self.name:
            raise SinkError(
                f"{self.path} holds a Delta table called {about.name or 'nothing'}, not {self.name}.",
                code="DELTA_PATH_TAKEN",
                hint="Give the sink a directory of its own.",
            )
        if vectors and about.configuration.get(_VECTORS) != "true":
            self.delta.alter.set_table_properties({_VECTORS: "true"})
        if evolve(self.delta, self.path, self.files.values(), schema):
            self._delta = None
        self.refresh()

    @property
    def rows(self) -> int:
        """Return how many rows the version seen last has."""
        return sum(file.live for file in self.files.values())

    @property
    def _log(self) -> Path:
        return self.path / "_delta_log"

    def _commit_file(self, version: int) -> Path:
        return commit_path(self.path, version)

    def refresh(self) -> None:
        """See what other writers have done since.

        Raises:
            SinkError: ``DELTA_TABLE_MISSING``: there is no such table.
        """
        if self._delta is not None and self._marked() == self._mark:
            if not self._commit_file(self.version + 1).exists():
                return
            if self._delta.version() == self.version:
                self._delta.update_incremental()
            else:
                self._delta = None
        else:
            # Never opened, or dropped and created again in our absence.
            self._delta = None
        self._load()

    def _marked(self) -> tuple[int, int] | None:
        try:
            status = self._commit_file(self.version).stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns

    def _load(self) -> None:
        self.version = -1
        delta = self.delta
        protocol, about = delta.protocol(), delta.metadata()
        actions = pa.table(delta.get_add_actions())
        columns = (actions[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
        self.files = {
            path: DataFile(path, size, rows if rows is not None else count_rows(self.path / path))
            for path, size, rows in zip(*columns, strict=True)
        }
        if "deletionVectors" in (protocol.reader_features or ()):
            for path, deleted, vector in vectors_of(delta):
                self.files[path] = replace(self.files[path], deleted=deleted, vector=vector)
        self.schema = pa.schema(delta.schema().to_arrow())
        self.version, self.identity = int(delta.version()), str(about.id)
        self._plain = about.configuration.get("delta.appendOnly") != "true" and (
            protocol.min_writer_version <= 2
            or (
                protocol.min_writer_version == 7
                and _KNOWN_FEATURES.issuperset(protocol.writer_features or ())
            )
        )
        self._mark = self._marked()

    def was_committed(self, names: Sequence[str]) -> bool:
        """Return whether one of the newest commits, seen or not, names any of these files."""
        commits = (self._commit_file(self.version + later) for later in range(-1, 3))
        texts = [path.read_text(encoding="utf-8") for path in commits if path.exists()]
        return any(name in text for text in texts for name in names)

    def commit(
        self, removes: Sequence[DataFile], adds: Sequence[DataFile], unforced: Sequence[Path] = ()
    ) -> None:
        """Commit that some files are no longer part of the table and others are, all or nothing.

        Args:
            removes: Files that are no longer part of it.
            adds: Files that are from now on.
            unforced: Those of their files that are not on the disk for good yet.

        Raises:
            Conflict: The table has moved on; nothing was changed.
            OSError: The disk refuses; nothing was changed.
        """
        version = self.version + 1
        ours = self._plain or any(file.vector for file in [*removes, *adds])
        if ours:
            append(self._log, version, removes, adds, unforced)
        else:
            sync_all(unforced)
            self._commit_by_library(removes, adds)
            self._unforced.add(self._commit_file(version))
        for file in removes:
            self.files.pop(file.path, None)
        self.files |= {file.path: file for file in adds}
        # Not what the library says: it would see a stranger's commit upon ours, which we have not.
        self.version = version
        self._mark = self._marked()
        self._unforced |= {self.path, self._log}
        if ours and version % _CHECKPOINT_INTERVAL == 0:
            self.delta.create_checkpoint()
            self.delta.cleanup_metadata()

    def _commit_by_library(self, removes: Sequence[DataFile], adds: Sequence[DataFile]) -> None:
        if self.delta.version() != self.version:
            raise Conflict(f"version {self.version + 1} is taken")
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, {}, now, data_change=True, stats=file.log_statistics)
            for file in adds
        ]
        actions += [
            RemoveAction(
                path=f.path, size=f.size, data_change=True, deletion_timestamp=now, partition_values={}
            )
            for f in removes
        ]
        try:
            self.delta.create_write_transaction(
                actions,
                "append",
                self.delta.schema(),
                # A version that is taken means that another writer was there: decide again, never insist.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError as error:
            raise Conflict(str(error)) from error

    def make_durable(self) -> None:
        """Force this object's commits to the disk, and the names of the files they name."""
        sync_all([path for path in self._unforced if path.exists()])
        self._unforced.clear()
