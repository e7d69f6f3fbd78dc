"""A Delta table seen by its one writer: the files it consists of, and commits that replace some of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from headrace.model.errors import SinkError
from headrace.observe.disk import make_folder
from sinks.delta.evolve import evolve
from sinks.delta.features import refuse_unknown
from sinks.delta.files import DataFile, Needed, count_rows, sync_all, unfit_file
from sinks.delta.log import Conflict, Offsets, append, by_library, commit_path, drop_torn, mark_of
from sinks.delta.strangers import Strangers, change_before_ours, foreign, seen_between, went_back
from sinks.delta.there import refuse_other
from sinks.delta.trouble import READING, LogGap, file_unfit, missing, named
from sinks.delta.vacuum import retention_seconds
from sinks.delta.vectors import hidden_rows, vector_end, vector_file

__all__ = ["LakeTable"]

_log = logging.getLogger("headrace")

_CHECKPOINT_INTERVAL = 100
_LEAST_LOG_SECONDS = 3600
"""The log tells at least so long what others have done; a sink that was away longer has to build anew."""
_VECTORS = "delta.enableDeletionVectors"


def _configuration(retention: float) -> dict[str, str]:
    return {
        # A reader that opens the table reads one checkpoint and at most this many small files of the log.
        "delta.checkpointInterval": str(_CHECKPOINT_INTERVAL),
        "delta.logRetentionDuration": f"interval {max(_LEAST_LOG_SECONDS, round(retention))} seconds",
        "delta.deletedFileRetentionDuration": f"interval {round(retention)} seconds",
    }


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
        retention: Seconds that replaced files stay, as the table says.
        known: The version up to which every commit is known to be explained; None where nobody has asked.
        went_back: Whether it was found at an earlier version than ``known``, or as another table, as a copy
            that was restored is. Nobody may write to it before its progress was looked at.
    """

    path: Path
    name: str
    files: dict[str, DataFile] = field(default_factory=dict)
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    version: int = -1
    identity: str = ""
    retention: float = 0.0
    known: int | None = None
    went_back: bool = False
    _delta: DeltaTable | None = None
    _mark: tuple[int, int] | None = None
    _unforced: set[Path] = field(default_factory=set)

    @property
    def delta(self) -> DeltaTable:
        """Return the open table, at the version seen last or a later one.

        Raises:
            SinkError: ``DELTA_TABLE_MISSING``: there is none that can be read.
            OSError: The file system does not say.
        """
        if self._delta is None or self._delta.version() < self.version:
            try:
                self._log.stat()  # which says why it is refused, as `is_dir` does not
            except (FileNotFoundError, NotADirectoryError) as error:
                raise missing(self.path, self.name) from error
            try:
                self._delta = DeltaTable(str(self.path))
            except DeltaError as error:
                raise named(error, self.path, self.name) from error
        return self._delta

    def create(self, schema: pa.Schema, *, vectors: bool, retention: float) -> None:
        """Create the table empty, or open the one that is there and bring its columns up to date.

        Args:
            schema: The columns it is to have.
            vectors: Whether rows may be hidden by deletion vectors.
            retention: Of a new table: seconds that replaced files stay. One that is there keeps its own.

        Raises:
            SinkError: ``DELTA_PATH_TAKEN``: the directory holds another table; ``DELTA_COLUMN_TYPE``: it
                holds this one with columns of other types.
        """
        make_folder(self.path)
        wanted = _configuration(retention) | ({_VECTORS: "true"} if vectors else {})
        changed = False
        drop_torn(self._log)
        if not DeltaTable.is_deltatable(str(self.path)):
            DeltaTable.create(
                str(self.path),
                schema=Schema.from_arrow(schema),
                mode="ignore",
                name=self.name,
                configuration=wanted,
                commit_properties=by_library(),
            )
            self.identity, self.known = "", None
            changed = True
        self.refresh()
        about = self.delta.metadata()
        refuse_other(self.delta, self.path, self.name)
        self.refuse_unfit_files()
        if vectors and about.configuration.get(_VECTORS) != "true":
            self.delta.alter.set_table_properties({_VECTORS: "true"}, commit_properties=by_library())
            changed = True
        if evolve(self.delta, self.path, self.files.values(), schema):
            self._delta = None
            changed = True
        self.refresh()
        if changed:
            self.force_all()

    def add_columns(self, wanted: pa.Schema) -> None:
        """Add the columns that are wanted and not there.

        A table that others have taken back to a version before a column came lacks it, though not a row.
        """
        there = set(self.schema.names)
        lacking = [field for field in wanted if field.name not in there]
        if lacking:
            try:
                evolve(self.delta, self.path, (), pa.schema(lacking))
            except CommitFailedError as error:  # another writer has committed in between
                raise Conflict from error
            finally:
                self._delta = None
            self.refresh()
            self.force_all()

    def refuse_rows_before_ours(self) -> None:
        """Refuse what others wrote to a table before we have written a row, or put in its place.

        Raises:
            SinkError: ``DELTA_FOREIGN_COMMIT``; ``DELTA_PATH_TAKEN``: it is another table.
        """
        refuse_other(self.delta, self.path, self.name)
        if self.rows and (commit := change_before_ours(self._log, self.version)) is not None:
            raise foreign(Strangers(commit), self.name)

    def needed_files(self) -> frozenset[Needed]:
        """Return the files of the version seen last: data and vectors."""
        vectors: dict[str, int] = {}
        for file in self.files.values():
            if (name := vector_file(file.vector)) is not None and file.vector is not None:
                vectors[name] = max(vector_end(file.vector), vectors.get(name, 0))
        return frozenset(
            (
                *(Needed(file.path, file.size, exact=True) for file in self.files.values()),
                *(Needed(name, end, exact=False) for name, end in vectors.items()),
            )
        )

    def refuse_unfit_files(self) -> None:
        """Refuse a table of which a file is gone, or not as long as the log says.

        Raises:
            SinkError: ``DELTA_FILE_UNREADABLE``.
            SinkUnavailable: The file system does not say.
        """
        try:
            unfit = unfit_file(self.path, self.needed_files())
        except OSError as error:
            raise named(error, self.path, self.name) from error
        if unfit is not None:
            raise file_unfit(self.name, unfit)

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
            SinkError: ``DELTA_TABLE_MISSING``: there is no such table; ``DELTA_TABLE_FEATURE``: it was given
                features this sink does not know; ``DELTA_LOG_UNREADABLE``: its log has a hole;
                ``DELTA_FOREIGN_COMMIT``: others have changed its rows; ``DELTA_WENT_BACK``: a RESTORE has.
        """
        if self._delta is not None and self.is_ours:
            if not self._commit_file(self.version + 1).exists():
                return
            if self._delta.version() == self.version:
                try:
                    self._delta.update_incremental()
                except DeltaError:
                    self._delta = None
            else:
                self._delta = None
        else:
            # Never opened, or dropped and created again in our absence.
            self._delta = None
        before, seen = self.identity, self.version
        try:
            self._load()
            self._look_for_empty_commits(seen)
        except (*READING, OSError, pa.ArrowException) as error:
            self._delta = None
            raise named(error, self.path, self.name) from error
        if before not in ("", self.identity):
            self.known, self.went_back = None, True
        elif self.known is not None and self.version < self.known:
            self.went_back = True
        self._look_at_strangers()

    def _look_for_empty_commits(self, seen: int) -> None:
        """Raise when a power cut has left a commit without content: the library passes over it in silence."""
        for version in range(max(seen, self.version - _CHECKPOINT_INTERVAL) + 1, self.version + 1):
            commit = self._commit_file(version)
            if commit.exists() and not commit.stat().st_size:
                raise LogGap(f"version {version}")

    def _look_at_strangers(self) -> None:
        if self.known is not None and self.known < self.version:
            found = seen_between(self._log, self.known, self.version)
            if found.changed or found.unknown:
                self._delta = None  # looked at again the next time
                raise foreign(found, self.name)
            if found.restored:
                self._delta = None
                raise went_back(found, self.name)
        self.known = self.version

    @property
    def is_gone(self) -> bool:
        """Return whether the commit seen or made last is not there any more."""
        return self._mark is not None and self._marked() is None

    @property
    def is_ours(self) -> bool:
        """Return whether the commit seen or made last still stands: neither gone nor replaced by another."""
        return self._marked() == self._mark

    def _marked(self) -> tuple[int, int] | None:
        return mark_of(self.path, self.version)

    def _load(self) -> None:
        self.version = -1
        delta = self.delta
        refuse_unknown(delta, self.name)
        about = delta.metadata()
        actions = pa.table(delta.get_add_actions())
        columns = (actions[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
        self.files = {
            path: DataFile(path, size, rows if rows is not None else count_rows(self.path / path))
            for path, size, rows in zip(*columns, strict=True)
        }
        if "deletionVectors" in (delta.protocol().reader_features or ()):
            for path, deleted, vector in hidden_rows(delta):
                self.files[path] = replace(self.files[path], deleted=deleted, vector=vector)
        self.schema = pa.schema(delta.schema().to_arrow())
        self.version, self.identity = int(delta.version()), str(about.id)
        self.retention = retention_seconds(about.configuration)
        self._mark = self._marked()

    def was_committed(self, names: Sequence[str]) -> bool:
        """Return whether one of the newest commits, seen or not, names any of these files."""
        commits = (self._commit_file(self.version + later) for later in range(-1, 3))
        texts = [path.read_text(encoding="utf-8") for path in commits if path.exists()]
        return any(name in text for text in texts for name in names)

    def commit(
        self,
        removes: Sequence[DataFile],
        adds: Sequence[DataFile],
        unforced: Sequence[Path] = (),
        *,
        settled: Offsets | None = None,
        changes_data: bool = True,
    ) -> None:
        """Commit that some files are no longer part of the table and others are, all or nothing.

        Args:
            removes: Files that are no longer part of it.
            adds: Files that are from now on.
            unforced: Those of their files that are not on the disk for good yet.
            settled: What is settled of the table's topics.
            changes_data: Whether its rows are others afterwards.

        Raises:
            Conflict: The table has moved on; nothing was changed.
            OSError: The disk refuses; nothing was changed.
        """
        if not self.is_ours:
            raise Conflict(f"version {self.version} is not the one that was seen")
        version = self.version + 1
        append(self._log, version, removes, adds, unforced, settled=settled, changes_data=changes_data)
        for file in removes:
            self.files.pop(file.path, None)
        self.files |= {file.path: file for file in adds}
        # Not what the library says: it would see a stranger's commit upon ours, which we have not.
        self.version = self.known = version
        self._mark = self._marked()
        self._unforced.add(self._log)
        if version % _CHECKPOINT_INTERVAL == 0:
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Let the library make a checkpoint and remove the log's oldest part; the commit stands without."""
        try:
            sync_all([self._log])  # or it could outlive the commit that it ends with
            self.delta.create_checkpoint()
            # Before anything that it stands for goes.
            made = self._log.glob(f"{int(self.delta.version()):020d}.checkpoint*")
            sync_all([*made, self._log / "_last_checkpoint"])
            self.delta.cleanup_metadata()
        except (DeltaError, SinkError, OSError) as error:
            _log.warning("no checkpoint of %s was made: %s", self.name, type(error).__name__)

    def force_all(self) -> None:
        """Force all of the table to the disk, for the library names commits before their content is there."""
        commits = self._log.glob("*.json")
        sync_all([*(self.path / file for file in self.files), *commits, self.path, self._log])

    def make_durable(self) -> None:
        """Force this object's commits to the disk, and the names of the files they name."""
        sync_all([path for path in self._unforced if path.exists()])
        self._unforced.clear()
