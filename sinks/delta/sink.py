"""The lake sink: the protocol's words, spoken by one writer per table."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar

from headrace.model.change import Change
from headrace.model.claim import Claim
from headrace.model.errors import SinkError, SinkUnavailable, SinkWentBack
from headrace.model.finding import Finding
from headrace.model.key import Key
from headrace.model.life import is_among, topic_in
from headrace.model.outcome import Outcome
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema
from headrace.observe import failpoints
from sinks.base import Place, Progress, Stored, Target
from sinks.delta.claims import Claims
from sinks.delta.config import ASIDE, LakeConfig, data_path, directory_name, tombstones_path
from sinks.delta.decode import decode
from sinks.delta.files import Needed, conform
from sinks.delta.index import KeyIndex, shared_index
from sinks.delta.log import Offsets
from sinks.delta.one_table import about_table, tidied, was_put_back
from sinks.delta.owner import own, owner_of
from sinks.delta.progress import ProgressFile, Witness
from sinks.delta.scan import live_rows
from sinks.delta.shadow import is_of_others, replace_table
from sinks.delta.shape import Shape, shape_of
from sinks.delta.standing import Standing
from sinks.delta.table import LakeTable
from sinks.delta.there import there_findings
from sinks.delta.tombstones import Tombstones
from sinks.delta.trouble import READING, named, overwritten, put_back, unwritable
from sinks.delta.vacuum import Vacuum
from sinks.delta.writer import TableWriter
from sinks.shadow import serving_config, switch

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
        self._root = config.root
        self._index = shared_index(self._root, config.index_bytes)
        self._writers: dict[TableId, TableWriter] = {}
        self._lock = threading.Lock()
        self._unsettled: set[TableId] = set()
        self._claims = Claims(self._root / ASIDE / "claims")
        self._progress = ProgressFile(
            self._root / ASIDE / f"progress-{directory_name(config.shadow or name)}.json", self._root
        )
        self._standing = Standing()
        self._refused: dict[Path, SinkError] = {}

    def check(self, schemas: Sequence[TableSchema] = ()) -> list[Finding]:
        try:
            folder = next(path for path in (self._root, *self._root.absolute().parents) if path.exists())
            with tempfile.TemporaryFile(dir=folder) as probe:
                probe.write(b"probe")
            free = shutil.disk_usage(folder).free
        except OSError as error:
            message = f"The lake's directory {self._root} cannot be written: {error.strerror}."
            return [Finding.error("DELTA_PATH", message, "Give the sink a directory this user may write.")]
        findings = [Finding.ok("DELTA_PATH", f"The lake's directory {self._root} can be written.")]
        owner = owner_of(self._root)
        if owner not in (None, self.name):
            message = f"The lake's directory {self._root} belongs to the sink “{owner}”."
            findings.append(Finding.error("DELTA_PATH_TAKEN", message, "Give each sink its own directory."))
        if free < _LITTLE_SPACE:
            message = f"Only {free >> 20} MiB are free at {self._root}."
            findings.append(Finding.warning("DELTA_LITTLE_SPACE", message, "Free some space first."))
        for schema in schemas:
            path = data_path(self._root, schema.table)
            findings += there_findings(schema.table, path, self._shape(schema))
        return findings

    def prepare(self, schema: TableSchema) -> None:
        try:
            own(self._root, self.config.shadow or self.name)  # who fills one has another name
        except OSError as error:
            raise self._unwritable(error) from error
        path, name = data_path(self._root, schema.table), str(schema.table)
        with about_table(schema):
            if (refused := self._refused.get(path)) is not None:
                raise refused  # it may have come back since; the next look says what it holds
            try:
                writer = self._writer(schema.table)
                with writer.lock:
                    writer.table.create(
                        self._shape(schema).arrow,
                        vectors=self.config.deletion_vectors,
                        retention=self.config.keep_replaced_seconds,
                    )
            except OSError as error:
                raise unwritable(error.errno, path, name, "") from error
            except READING as error:
                raise named(error, path, name) from error

    def exists(self, schema: TableSchema) -> bool:
        return data_path(self._root, schema.table).is_dir()

    def _unwritable(self, error: OSError) -> SinkUnavailable:
        about = f"The lake's directory {self._root} cannot be written"
        return unwritable(error.errno, self._root, self.name, about)

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
                identity, known = self._standing.known(path, self._progress)
                self._writers[table] = TableWriter(
                    LakeTable(path, str(table), identity=identity, known=known),
                    self._index,
                    Tombstones(tombstones_path(self._root, table), config.tombstone_hours * 3600),
                    Vacuum(path),
                    config.deletion_vectors,
                    settled=lambda: self._progress.of_table(path),
                )
            return self._writers[table]

    def _shape(self, schema: TableSchema) -> Shape:
        return shape_of(schema, self.config.policies(schema))

    def target(self, schema: TableSchema) -> Target:
        facts: dict[str, object] = {"path": str(data_path(self._root, schema.table))}
        if renamed := self._shape(schema).renamed:
            facts["renamed"] = renamed
        return Target(schema.table, facts)

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        if not changes:
            return []
        with about_table(schema):
            outcomes = self._writer(schema.table).apply(self._shape(schema), changes)
        with self._lock:
            self._unsettled.add(schema.table)
        return outcomes

    def rows(self, schema: TableSchema, keys: Sequence[Key]) -> dict[Key, Stored]:
        by_id = {key.id: key for key in keys}
        shape = self._shape(schema)
        with about_table(schema):
            stored = conform(self._writer(schema.table).stored(list(by_id)), shape.arrow)
        return {by_id[found.key]: found for found in decode(shape, stored)}

    def truncate(self, schema: TableSchema, position: Position) -> int:
        with about_table(schema):
            removed = self._writer(schema.table).truncate(position.floor, position.version)
        with self._lock:
            self._unsettled.add(schema.table)
        return removed

    def count(self, schema: TableSchema, position: Position | None = None) -> int:
        writer = self._writer(schema.table)
        with about_table(schema):
            return writer.count(position.floor, position.version) if position else writer.count()

    def maintain(self, seconds: float, leave: Collection[TableId] = ()) -> bool:
        """Tidy tables in an idle moment, for about ``seconds`` at most; return whether there is more to do.

        Many small files become one, hidden rows go, old tombstones and files that no reader needs are
        deleted. Where there is nothing to do it costs a look at each table's log. Readers and other
        writers are not disturbed: a table somebody writes to is left for later, replaced files stay as
        long as the table says, and what a process that dies in between leaves goes when it is old enough.
        A table that cannot be tidied is passed over; who writes to it is told.

        Raises:
            SinkUnavailable: The disk is full.
        """
        until = time.monotonic() + seconds
        # A lake that was put back is told by who settles.
        with suppress(SinkUnavailable, SinkWentBack, OSError):
            if ahead := self._standing.ahead(self._root, self._progress.read()["tables"]):
                self._progress.settle({}, ahead)
        with self._lock:
            mine = [writer for table, writer in self._writers.items() if table not in leave]
        writers = sorted(mine, key=lambda writer: writer.tidied)
        for writer in writers:
            go_on = True
            while go_on:
                if time.monotonic() >= until:
                    return True
                go_on = tidied(writer, until)
        return False

    def progress(self, places: Collection[Place] | None = None) -> Progress:
        try:
            stored = self._progress.look()
        except OSError as error:
            raise self._unwritable(error) from error
        # What is remembered of files that were put back is of a later time.
        self._reopen(was_put_back)
        named = {topic for topic, _ in places} if places is not None else None
        topics = {topic for topic in stored["offsets"] if named is None or topic in named}
        found = dict(self._progress.offsets(topics))
        for topic in topics:
            entry = stored["tables"].get(topic_in(topic))
            if entry is not None and (true := self._still_true(entry)) is not None:
                for place in [place for place in found if place[0] == topic]:
                    if (offset := true.get(topic, {}).get(str(place[1]))) is None:
                        del found[place]
                    else:
                        found[place] = min(found[place], offset)
        return {place: offset for place, offset in found.items() if places is None or place in places}

    def _reopen(self, which: Callable[[TableWriter], bool]) -> None:
        with self._lock:
            self._writers = {table: one for table, one in self._writers.items() if not which(one)}

    def _still_true(self, entry: Mapping[str, object]) -> Offsets | None:
        """Return what of a table's progress still holds; None when all of it does."""
        path, version = self._root / str(entry["path"]), int(str(entry["version"]))
        self._refused.pop(path, None)
        try:
            true = self._standing.still_true(path, str(entry["id"]), version)
        except (OSError, SinkUnavailable) as error:
            # Nothing is proven; preparing the table tells why, and touches nothing.
            self._refused[path] = named(error, path, f"{path.parent.name}.{path.name}")
            return {}
        if true is not None:
            self._reopen(lambda writer: writer.table.path == path)
        return true

    def identities(self, schemas: Sequence[TableSchema]) -> dict[TableId, str] | None:
        return None  # progress says which version of which table it is about

    def settle(self, progress: Progress) -> None:
        with self._lock:
            tables, self._unsettled = self._unsettled, set()
        files: dict[Witness, Collection[Needed]] = {}
        left, away, unproven = set(tables), set[TableId](), set[str]()
        try:
            for table in tables:
                left.discard(table)  # one that raises would hold up the others for ever
                try:
                    files |= self._witness(self._writer(table))
                except OSError:  # nothing is settled of it; what it lacks then is applied again
                    away.add(table)
                    unproven |= self._writer(table).topics
            left = tables
            true = {place: end for place, end in progress.items() if topic_in(place[0]) not in unproven}
            self._progress.settle(true, list(files))
            with self._lock:
                self._unsettled |= away
            for witness, needed in files.items():
                self._standing.note(witness.path, witness.identity, witness.version, needed)
        except SinkError:
            with self._lock:
                self._unsettled |= left
            raise
        except OSError as error:
            with self._lock:
                self._unsettled |= tables
            about = "The lake's progress cannot be written"
            raise unwritable(error.errno, self._root, self.name, about) from error

    @staticmethod
    def _witness(writer: TableWriter) -> dict[Witness, Collection[Needed]]:
        """Return what proves that a table holds what is settled → its files; empty if that is unexplained."""
        with writer.lock:
            table = writer.table
            if table.version < 0:
                table.refresh()
            table.make_durable()
            if table.went_back or table.is_gone:
                raise put_back(table.path)
            if not table.is_ours:
                # A writer that renames files over others' has taken a version that was ours.
                raise overwritten(table.name)
            if table.known != table.version:
                return {}
            told = Witness(table.path, table.identity, table.version, frozenset(writer.topics))
            return {told: table.needed_files()}

    def scan(self, schema: TableSchema) -> Iterator[Stored]:
        lake = LakeTable(data_path(self._root, schema.table), str(schema.table))
        with about_table(schema):
            yield from live_rows(lake, self._shape(schema))

    def drop(self, schema: TableSchema) -> None:
        # Names are escaped, so the path is always two directories below the root.
        path = data_path(self._root, schema.table)
        tombstones = tombstones_path(self._root, schema.table)
        writer = self._writer(schema.table)
        with writer.lock, self._lock:
            if path.is_dir() and not is_of_others(path, str(schema.table)):
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

    def switch(self, schema: TableSchema) -> None:
        with closing(DeltaSink(self.name, serving_config(self.config))) as serving:
            path = data_path(self._root, schema.table)
            settled = self._progress.offsets(self._progress.read()["offsets"])
            topics = {topic_in(life) for life, _ in settled}

            def move() -> None:
                serving._replace(self, schema)
                serving._taken(schema.table, topics)

            try:
                filled = (path / "_delta_log").is_dir()
                if settled and not filled:
                    serving._taken(schema.table, topics)
                switch(serving, self, schema, settled=settled, filled=filled, move=move)
                if self._root.is_dir():
                    shutil.rmtree(self._root)
            except OSError as error:
                raise self._unwritable(error) from error

    def _replace(self, shadow: DeltaSink, schema: TableSchema) -> None:
        """Give the table the columns and rows of its shadow, which goes."""
        own(self._root, self.name)
        mine, other = self._writer(schema.table), shadow._writer(schema.table)
        mine.tombstones.add(other.tombstones)
        with about_table(schema):
            replace_table(other.table, mine.table.path, self._root / ASIDE / "lost")
        failpoints.hit("switch.page", self.kind)
        if other.table.path.is_dir():
            shutil.rmtree(other.table.path)

    def _taken(self, table: TableId, topics: Collection[str]) -> None:
        """Let the next progress say which version of the table holds what it tells of."""
        writer = self._writer(table)
        writer.table.refresh()
        writer.table.went_back = False  # it is another on purpose
        writer.table.force_all()
        writer.topics.update(topics)
        self._unsettled.add(table)

    def forget(self, topics: Collection[str]) -> None:
        gone, stored = set(topics), self._progress.read()["tables"]
        paths = {self._root / str(entry["path"]) for name, entry in stored.items() if is_among(name, gone)}
        # What they know of versions was told by what is forgotten.
        self._reopen(lambda writer: writer.table.path in paths)
        self._progress.forget(topics)
        if self.config.shadow and [path.name for path in self._root.glob("*")] == [ASIDE]:
            shutil.rmtree(self._root)  # its only table is gone

    def close(self) -> None:
        with self._lock:
            self._writers.clear()
            self._index = KeyIndex(0)
