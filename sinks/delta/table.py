"""A Delta table seen by its one writer: the files it consists of, and commits that replace some of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction
from deltalake._internal import RemoveAction

from headrace.model.errors import SinkError
from sinks.delta.files import DataFile, count_rows, new_name, statistics, sync, write

__all__ = ["Conflict", "LakeTable"]

_CONFIGURATION = {
    # A reader that opens the table reads one checkpoint and at most this many small files of the log.
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}


class Conflict(Exception):
    """Another writer has changed the table meanwhile; what was decided has to be decided again."""


@dataclass(slots=True)
class LakeTable:
    """One Delta table on disk.

    Args:
        path: Its directory.
        name: What it mirrors; kept in the table, so that two tables never share a directory unseen.
    """

    path: Path
    name: str
    files: dict[str, DataFile] = field(default_factory=dict)
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    _delta: DeltaTable | None = None
    _mark: tuple[int, int] | None = None

    def create(self, schema: pa.Schema) -> None:
        """Create the table empty, or open the one that is there.

        Raises:
            SinkError: ``DELTA_PATH_TAKEN``: the directory holds another table.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if not DeltaTable.is_deltatable(str(self.path)):
            DeltaTable.create(
                str(self.path),
                schema=Schema.from_arrow(schema),
                mode="ignore",
                name=self.name,
                configuration=_CONFIGURATION,
            )
        self.refresh()
        found = self._open.metadata().name
        if found != self.name:
            raise SinkError(
                f"{self.path} holds a Delta table called {found or 'nothing'}, not {self.name}.",
                code="DELTA_PATH_TAKEN",
                hint="Give the sink a directory of its own.",
            )

    @property
    def _open(self) -> DeltaTable:
        if self._delta is None:
            self._delta = DeltaTable(str(self.path))
        return self._delta

    @property
    def version(self) -> int:
        """Return the version seen last."""
        return int(self._open.version())

    @property
    def identity(self) -> str:
        """Return an id that differs between a table and one created in its place later."""
        return str(self._open.metadata().id)

    @property
    def rows(self) -> int:
        """Return how many rows the version seen last has."""
        return sum(file.rows for file in self.files.values())

    def log_file(self, version: int) -> Path:
        """Return the path of a commit."""
        return self.path / "_delta_log" / f"{version:020d}.json"

    def refresh(self) -> None:
        """See what other writers have done since.

        Raises:
            SinkError: ``DELTA_TABLE_MISSING``: there is no such table.
        """
        try:
            if self._delta is not None and self._marked() == self._mark:
                before = self.version
                self._delta.update_incremental()
                if self.version == before:
                    return
            else:
                # Never opened, or dropped and created again in our absence.
                self._delta = DeltaTable(str(self.path))
        except (TableNotFoundError, DeltaError) as error:
            self._delta = None
            raise SinkError(
                f"There is no readable Delta table at {self.path}: {type(error).__name__}.",
                code="DELTA_TABLE_MISSING",
                hint="If it was removed on purpose, run a resnapshot of the table into this sink.",
            ) from error
        self._load()

    def _marked(self) -> tuple[int, int] | None:
        try:
            status = self.log_file(self.version).stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns

    def _load(self) -> None:
        actions = pa.table(self._open.get_add_actions())
        columns = (actions[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
        self.files = {
            path: DataFile(path, size, rows if rows is not None else count_rows(self.path / path))
            for path, size, rows in zip(*columns, strict=True)
        }
        self.schema = pa.schema(self._open.schema().to_arrow())
        self._mark = self._marked()

    def replace(self, old: Iterable[DataFile], new: Sequence[pa.Table]) -> list[DataFile]:
        """Write ``new`` as files and commit that they stand in the place of ``old``, all or nothing.

        Returns:
            The new files, in order.

        Raises:
            Conflict: The table has moved on; nothing was changed.
            OSError: The disk refuses; nothing was changed.
        """
        old = list(old)
        files: list[DataFile] = []
        try:
            for table in new:
                files.append(DataFile(new_name(), 0, len(table)))
                write(self.path / files[-1].path, table)
                files[-1] = replace(files[-1], size=(self.path / files[-1].path).stat().st_size)
            self._commit(old, [(file, statistics(table)) for file, table in zip(files, new, strict=True)])
        except BaseException:
            for file in files:
                (self.path / file.path).unlink(missing_ok=True)
            raise
        for file, table in zip(files, new, strict=True):
            # Another writer's VACUUM without a retention takes files that no commit names yet.
            if not (self.path / file.path).exists():
                write(self.path / file.path, table)
        for file in old:
            del self.files[file.path]
        self.files |= {file.path: file for file in files}
        return files

    def _commit(self, old: Sequence[DataFile], new: Sequence[tuple[DataFile, str]]) -> None:
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, {}, now, data_change=True, stats=statistics)
            for file, statistics in new
        ]
        actions += [
            RemoveAction(path=file.path, size=file.size, data_change=True, deletion_timestamp=now, partition_values={})
            for file in old
        ]
        try:
            self._open.create_write_transaction(
                actions,
                "append",
                self._open.schema(),
                # A version that is taken means that another writer was there: decide again, never retry blindly.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError as error:
            raise Conflict(str(error)) from error
        self._mark = self._marked()

    def make_durable(self) -> None:
        """Force the commit seen last to the disk; its data files are there already."""
        sync(self.log_file(self.version))
        sync(self.path / "_delta_log")
