"""The files that tell the engine which pipelines to run: written, taken away, held against the registry."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from headrace.config.pipeline import (
    OriginSpec,
    PipelineSpec,
    SchemaPolicy,
    TableSpec,
    load_pipeline,
    write_private,
)
from headrace.control.alone import Say, take
from headrace.control.capture import secret_of, settings_of
from headrace.control.claims import installation, owner_file
from headrace.control.context import Context
from headrace.control.progress import read_progress
from headrace.control.registry import Registry, SinkEntry, SourceEntry, SourceTableEntry
from headrace.control.runner import at_rest
from headrace.model.errors import SinkError
from headrace.model.schema import TableId, TableSchema

__all__ = [
    "discard_run",
    "is_paused",
    "is_withheld",
    "origin_of",
    "orphans",
    "pipeline_of",
    "rewrite",
    "spec_path",
    "tables_told",
    "told_of",
    "withdraw",
    "withheld",
    "withhold",
    "worked_on",
    "working_on",
]

_STOP_S = 60.0


def spec_path(context: Context, name: str) -> Path:
    """Return the file that tells the engine of a sink."""
    return context.pipelines / f"{name}.json"


def origin_of(context: Context, source: SourceEntry) -> OriginSpec:
    """Return where the source's values may be looked up."""
    return OriginSpec(
        kind=source.kind,
        address=source.address,
        secret=secret_of(context, source.name).path,
        leave_out=settings_of(source).leave_out,
    )


def pipeline_of(
    context: Context, origin: SourceEntry, entry: SinkEntry, captured: Sequence[SourceTableEntry]
) -> PipelineSpec:
    """Return what the engine is told of a sink: from the beginning of its topics, not paused."""
    n = origin.partitions
    return PipelineSpec(
        sink=entry.name,
        kind=entry.kind,
        settings=entry.settings,
        source=origin.name,
        origin=origin_of(context, origin),
        kafka_bootstrap=context.kafka_bootstrap,
        placeholder=origin.placeholder,
        tables=tuple(
            TableSpec(topic=t.topic, epoch=t.epoch, table=t.table, partitions=n, topic_id=t.topic_id)
            for t in captured
        ),
        checkpoint=context.checkpoints / entry.name,
        dead_letters=context.dead_letters / entry.name,
        owner=owner_file(context, entry.name),
        home=installation(context),
        on_schema_change=SchemaPolicy(entry.on_schema_change),
    )


def tables_told(context: Context, sink: str) -> Mapping[TableId, TableSchema]:
    """Return the tables as a sink's query was told of them; nothing while its file is bad."""
    return _seen(spec_path(context, sink))[0]


def is_withheld(context: Context, sink: str) -> bool:
    """Return whether a command has the sink's query rest, or one that has died; not while its file is bad."""
    return _seen(spec_path(context, sink))[1]


def _seen(path: Path) -> tuple[Mapping[TableId, TableSchema], bool]:
    try:
        seen = path.stat()
        return _told_by(path, (seen.st_ino, seen.st_mtime_ns, seen.st_size))
    except (OSError, ValueError):
        return {}, False


@lru_cache(maxsize=256)
def _told_by(path: Path, version: tuple[int, ...]) -> tuple[Mapping[TableId, TableSchema], bool]:
    """Read a file once per version of it: it may tell of thousands of tables, and is asked every second."""
    spec = load_pipeline(path)
    schemas = [table.schema_ for table in spec.tables]
    return {schema.table: schema for schema in schemas}, spec.withheld


def orphans(context: Context, registry: Registry) -> list[PipelineSpec]:
    """Return the pipelines of which the registry knows nothing, as after it was lost or restored.

    The engine runs them as it was told to: their targets go on being served, and nobody watches them.
    """
    known = {sink.name for sink in registry.sinks()}
    found = []
    for path in sorted(context.pipelines.glob("[!.]*.json")):
        if path.stem not in known:
            try:
                spec = load_pipeline(path)
            except (OSError, ValueError):
                continue  # gone since it was listed, or none of ours
            from sinks.shadow import SHADOW  # only when there is one: who looks often imports no sink

            if SHADOW not in spec.settings:
                found.append(spec)
    return found


def rewrite(context: Context, sink: str, change: Callable[[PipelineSpec], Mapping[str, Any]]) -> PipelineSpec:
    """Give some fields of a pipeline other values, one command after another; return it as it was before.

    Raises:
        FileNotFoundError: The sink has no pipeline.
    """
    context.run.mkdir(parents=True, exist_ok=True)
    with (context.run / "pipelines.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = spec_path(context, sink)
        before = load_pipeline(path)
        after = before.model_copy(update=dict(change(before)))
        if after != before:
            write_private(path, after.model_dump_json())
        return before


@contextmanager
def told_of(sink: str) -> Iterator[None]:
    """Have what a command meets that looks for a sink's pipeline say how it is made anew.

    Raises:
        SinkError: When it is gone (``PIPELINE_GONE``) or damaged (``PIPELINE_DAMAGED``).
    """
    try:
        yield
    except (FileNotFoundError, ValueError) as error:
        gone = isinstance(error, FileNotFoundError)
        raise SinkError(
            f"The pipeline file of sink {sink} is {'gone' if gone else 'damaged'}.",
            code="PIPELINE_GONE" if gone else "PIPELINE_DAMAGED",
            hint=f"headrace sink resume {sink}",
        ) from error


@contextmanager
def withheld(context: Context, *sinks: str, doing: str, say: Say = lambda _: None) -> Iterator[None]:
    """Have the engine put the sinks' queries down while the block runs, one command after another.

    Whether a person has paused the sink, before or meanwhile, is another matter and stays as it is.

    Args:
        context: The installation.
        sinks: Which.
        doing: What others are told who wait meanwhile.
        say: Told for whom this one waits.

    Raises:
        SinkError: When the engine does not let go of a sink (``SINK_BUSY``), or its pipeline is gone or
            damaged (``PIPELINE_GONE``, ``PIPELINE_DAMAGED``); all go on then.
    """
    with ExitStack() as working:
        for sink in sinks:
            working.enter_context(working_on(context, sink, doing, say))
        try:
            for sink in sinks:
                with told_of(sink):
                    withhold(context, sink)
            yield
        finally:
            for sink in sinks:
                with suppress(FileNotFoundError, ValueError):  # told by then, or by the engine
                    rewrite(context, sink, lambda _: {"withheld": False})


@contextmanager
def working_on(context: Context, sink: str, doing: str, say: Say = lambda _: None) -> Iterator[None]:
    """Wait until no other command works on the sink's targets, and keep others away.

    Args:
        context: The installation.
        sink: Which.
        doing: What others are told who wait meanwhile.
        say: Told for whom this one waits.
    """
    with _lock_of(context, sink) as lock:
        take(lock, sink, doing, say)
        yield


@contextmanager
def worked_on(context: Context, sink: str) -> Iterator[bool]:
    """Yield whether a command works on the sink's targets; where none does, none begins meanwhile."""
    with _lock_of(context, sink) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield True
        else:
            yield False


def _lock_of(context: Context, sink: str) -> IO[str]:
    context.run.mkdir(parents=True, exist_ok=True)
    return (context.run / f"sink-{sink}.lock").open("a+")


def withhold(context: Context, sink: str) -> None:
    """Have the engine put the sink's query down until the pipeline says otherwise."""
    rewrite(context, sink, lambda _: {"withheld": True})
    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline:
        progress = read_progress(context.progress, sink)
        if progress is None or progress.state == "paused" or at_rest(context.progress):
            return
        time.sleep(0.1)
    rewrite(context, sink, lambda _: {"withheld": False})
    raise SinkError(
        f"The engine has not let go of sink {sink} after {_STOP_S:.0f} s.",
        code="SINK_BUSY",
        hint="Its store may not answer; see `headrace lag`.",
    )


def is_paused(context: Context, sink: str) -> bool:
    """Return whether a person has paused the sink."""
    with suppress(OSError, ValueError):
        return load_pipeline(spec_path(context, sink)).paused
    return False


def withdraw(context: Context, name: str) -> None:
    """Take the pipeline from the engine and wait until it has let go."""
    spec_path(context, name).unlink(missing_ok=True)
    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline:
        progress = read_progress(context.progress, name)
        if progress is None or progress.state in ("removed", "stopped"):
            return
        if at_rest(context.progress):
            return
        time.sleep(0.1)
    raise SinkError(
        f"The engine has not let go of sink {name} after {_STOP_S:.0f} s.",
        code="SINK_BUSY",
        hint="Try again in three minutes: an engine that hangs is replaced by then. See `headrace lag`.",
    )


def discard_run(context: Context, name: str) -> None:
    """Remove checkpoint and progress, so that a namesake later reads from the beginning."""
    shutil.rmtree(context.checkpoints / name, ignore_errors=True)
    for damaged in context.checkpoints.glob(f".{name}.damaged-*"):
        shutil.rmtree(damaged, ignore_errors=True)
    shutil.rmtree(context.requests / name, ignore_errors=True)
    (context.progress / f"{name}.json").unlink(missing_ok=True)
