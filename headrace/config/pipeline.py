"""The files by which the control plane tells the engine what to run; nothing else crosses."""

from __future__ import annotations

import os
import tempfile
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from headrace.model.life import life_of
from headrace.model.schema import TableSchema
from headrace.observe.disk import make_folder, sync

__all__ = [
    "EngineSpec",
    "PipelineSpec",
    "SchemaPolicy",
    "Swept",
    "TableSpec",
    "load_pipeline",
    "write_private",
]


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SchemaPolicy(str, Enum):
    """What a sink does when columns of a table change."""

    EVOLVE = "evolve"
    """Follow by itself; where columns have gone, read the table anew, so that rows lose their values, too."""
    LENIENT = "lenient"
    """Follow by itself and take nothing away: columns that are gone keep what they had."""
    IGNORE = "ignore"
    """Leave new columns out, and say so."""
    EXCEPTION = "exception"
    """Set the table's rows aside from then on, until somebody decides."""


class TableSpec(_Spec):
    """One table of a pipeline.

    Args:
        topic: Its Kafka topic.
        epoch: Incarnation of that topic; the high part of every position.
        table: ``TableSchema.as_dict()``.
        partitions: How many the topic has; fixed for the epoch.
        topic_id: Kafka's identity of the topic; empty in a file of an older version.
        target: How often another target has taken the place of the first one.
    """

    topic: str
    epoch: int = Field(ge=0)
    table: dict[str, Any]
    partitions: int = Field(default=1, ge=1)
    topic_id: str = ""
    target: int = Field(default=0, ge=0)

    @property
    def life(self) -> str:
        """Return the name under which progress of this incarnation is kept."""
        return life_of(self.topic, self.topic_id)

    @property
    def schema_(self) -> TableSchema:
        """Return the table's schema."""
        return TableSchema.from_dict(self.table)


class OriginSpec(_Spec):
    """Where a source's values may be looked up.

    Args:
        kind: Source kind, see ``connectors.registry``.
        address: Of the database, without its password.
        secret: File that has the password, under the name ``password``.
        leave_out: Columns that are not captured, as schema, table and column.
    """

    kind: str
    address: str
    secret: Path
    leave_out: tuple[tuple[str, str, str], ...] = ()


class Swept(_Spec):
    """The last complete run that read a table anew, for replays from before it.

    Rows below the marks that the run did not see are gone, though no record of the topic says so. After
    records from below ``ends`` were applied again, rows below the marks are removed once more.

    Args:
        marks: Per partition: the offset at which the run began. Every row that was there then has a record
            from here on, up to its end; one whose version is below was gone.
        ends: Per partition: the offset after the run's last record.
    """

    marks: tuple[int, ...]
    ends: tuple[int, ...]


class PipelineSpec(_Spec):
    """One source's changes applied to one sink.

    Args:
        sink: The sink's name; also the streaming query's name.
        kind: Sink kind, see ``sinks.registry``.
        settings: The kind's own settings.
        source: The source's name.
        origin: Whom to ask for values that the connector may have lost; None in a file of an older version.
        kafka_bootstrap: Broker addresses.
        placeholder: What the connector sends for a value it does not know (unchanged TOAST).
        tables: What to mirror.
        checkpoint: Directory of the query's checkpoint.
        dead_letters: Directory of this sink's dead letter files.
        owner: File in which its queries note whom they claimed the targets as.
        home: The installation, as claims name it.
        holder: Whom the running query claimed the targets as; set by the engine.
        on_schema_change: What to do when columns change.
        renewed_ms: When its secrets were renewed; another value has the store opened anew.
        paused: True keeps the query stopped; only a person's command changes it.
        withheld: True keeps the query stopped while a command works on the sink's targets.
        swept: Topic → the last complete run that read its table anew; absent where there was none.
        whole_from: Topic → by partition, from where it tells of every row. A query that begins later than
            there lacks rows; absent where it may begin anywhere.
        max_offsets_per_trigger: Upper bound of records in one micro-batch.
    """

    sink: str
    kind: str
    settings: dict[str, Any]
    source: str
    origin: OriginSpec | None = None
    kafka_bootstrap: str
    placeholder: str
    tables: tuple[TableSpec, ...]
    checkpoint: Path
    dead_letters: Path
    owner: Path
    home: str
    holder: str = ""
    on_schema_change: SchemaPolicy = SchemaPolicy.LENIENT
    paused: bool = False
    withheld: bool = False
    renewed_ms: int = 0
    swept: dict[str, Swept] = {}
    whole_from: dict[str, tuple[int, ...]] = {}
    max_offsets_per_trigger: int = 50_000

    @property
    def runs(self) -> bool:
        """Return whether there is to be a query."""
        return not self.paused and not self.withheld

    def begins_late(self, topic: str, partition: int, first: int) -> bool:
        """Return whether a query that begins with this record of a topic misses rows, as far as is known."""
        whole = self.whole_from.get(topic, ())
        return partition < len(whole) and first > whole[partition]


DRIVER_JVM = ("-XX:+UseSerialGC",)
"""Options that decide what the driver's JVM looks like inside; an ahead-of-time cache depends on them."""


class EngineSpec(_Spec):
    """How to run the process that applies changes.

    Args:
        pipelines: Directory of ``<sink>.json`` pipeline specs; watched while running.
        progress: Directory where ``<sink>.json`` progress is written.
        requests: Directory where requests to a sink's query appear, in a folder of its name.
        run: Directory of pid files.
        logs: Directory of logs.
        work: Scratch directory of Spark.
        java_home: JDK for Spark.
        jars: Jars for the driver's class path.
        java_options: Further options of the driver's JVM, e.g. a cache that makes it start faster.
        master: Spark master URL. ``local[n]`` counts threads, not processors: a store that hangs keeps those
            of its batch, and the other sinks' batches need some meanwhile.
        driver_memory: Heap of the driver, e.g. ``1g``.
    """

    pipelines: Path
    progress: Path
    requests: Path
    run: Path
    logs: Path
    work: Path
    java_home: Path
    jars: tuple[Path, ...]
    java_options: tuple[str, ...] = ()
    master: str = "local[8]"
    driver_memory: str = "1g"


def load_pipeline(path: Path) -> PipelineSpec:
    """Read a pipeline spec."""
    return PipelineSpec.model_validate_json(path.read_bytes())


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` atomically and durably with ``text``, readable by the owner only."""
    make_folder(path.parent, 0o700)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:  # it may hold a password, and nobody would know of it
        Path(temporary).unlink(missing_ok=True)
        raise
    sync(path.parent)
