"""The files by which the control plane tells the engine what to run; nothing else crosses."""

from __future__ import annotations

import os
import tempfile
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from headrace.model.schema import TableSchema

__all__ = ["EngineSpec", "PipelineSpec", "SchemaPolicy", "TableSpec", "load_pipeline", "write_private"]


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
    """

    topic: str
    epoch: int = Field(ge=0)
    table: dict[str, Any]
    partitions: int = Field(default=1, ge=1)

    @property
    def schema_(self) -> TableSchema:
        """Return the table's schema."""
        return TableSchema.from_dict(self.table)


class PipelineSpec(_Spec):
    """One source's changes applied to one sink.

    Args:
        sink: The sink's name; also the streaming query's name.
        kind: Sink kind, see ``sinks.registry``.
        settings: The kind's own settings.
        source: The source's name.
        kafka_bootstrap: Broker addresses.
        placeholder: What the connector sends for a value it does not know (unchanged TOAST).
        tables: What to mirror.
        checkpoint: Directory of the query's checkpoint.
        dead_letters: Directory of this sink's dead letter files.
        owner: File in which its queries note whom they claimed the targets as.
        home: The installation, as claims name it.
        holder: Whom the running query claimed the targets as; set by the engine.
        on_schema_change: What to do when columns change.
        paused: True keeps the query stopped.
        max_offsets_per_trigger: Upper bound of records in one micro-batch.
    """

    sink: str
    kind: str
    settings: dict[str, Any]
    source: str
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
    max_offsets_per_trigger: int = 50_000


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
        master: Spark master URL.
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
    master: str = "local[2]"
    driver_memory: str = "1g"


def load_pipeline(path: Path) -> PipelineSpec:
    """Read a pipeline spec."""
    return PipelineSpec.model_validate_json(path.read_bytes())


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` atomically with ``text``, readable by the owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    Path(temporary).replace(path)
