"""A source's life: checked, set up in the database, registered with Connect, removed without a trace."""

from __future__ import annotations

import secrets as random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from connectors import registry as kinds
from connectors.base import Capture, Keys, Source, topic_of
from connectors.postgres.properties import MAX_RECORD_BYTES
from headrace.config.source import SourceSettings, valid_name
from headrace.control.capture import capture_of, secret_of, source_of
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.gap import START_OVER, find_gap
from headrace.control.kafka import Kafka, Topic
from headrace.control.registry import Registry, SourceEntry, SourceTableEntry, now_ms
from headrace.control.snapshot import SnapshotState, initial
from headrace.model.errors import SourceError, UsageError
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId, TableSchema

_FORGETS_S = 15.0

__all__ = ["Say", "add", "check", "pause", "remove", "resume", "wait_streaming"]

Say = Callable[[str], None]
"""Told one sentence per step; for people."""

_TASK_START_S = 120.0
_HOUR_MS = 3_600_000


def check(
    url: str,
    *,
    tables: Sequence[TableId] = (),
    schemas: Sequence[str] = ("public",),
    keys: Keys | None = None,
    partitions: int = 1,
) -> list[Finding]:
    """Return what speaks for or against adding the database; changes nothing."""
    source = kinds.build(kinds.kind_of(url), url)
    wanted = list(tables) or source.tables(schemas)
    _refuse_unmeant(wanted, keys or {})
    return source.preflight(wanted, keys, partitions=partitions)


def add(
    context: Context,
    name: str,
    url: str,
    *,
    tables: Sequence[TableId] = (),
    schemas: Sequence[str] = ("public",),
    keys: Keys | None = None,
    settings: SourceSettings | None = None,
    wait: bool = True,
    say: Say = lambda _: None,
) -> SourceEntry:
    """Register a database and start its connector; with ``wait`` return when it streams.

    Without ``wait`` it returns as soon as the connector is created; its snapshot goes on.
    When anything fails, what was made is removed again.

    Raises:
        UsageError: When the name is taken or cannot be one, or a key is declared for a table not captured.
        SourceError: When the database is unfit, with every reason, or the connector fails.
        StackError: When Kafka or Connect does not answer.
    """
    valid_name(name, of="source")
    registry = Registry(context.registry)
    if name in (entry.name for entry in registry.sources()):
        raise UsageError(
            f"There is a source “{name}” already.",
            code="SOURCE_EXISTS",
            hint=f"headrace source remove {name}",
        )
    kind = kinds.kind_of(url)
    source = kinds.build(kind, url)
    wanted = list(tables) or source.tables(schemas)
    settings = settings or SourceSettings()
    say("checking the database")
    _refuse_unmeant(wanted, keys or {})
    _refuse_unfit(source.preflight(wanted, keys, partitions=settings.partitions))
    password = source.password
    secret = secret_of(context, name)
    capture = Capture(
        source=name,
        tables=tuple(source.catalogue(wanted, keys)),
        placeholder=f"__headrace_unavailable_{random.token_hex(8)}",
        password=secret.placeholder,
        settings=settings,
    )
    with Connect(context.connect_url) as connect, ExitStack() as undo:
        kafka = Kafka(context.kafka_bootstrap)
        _clear_remains(connect, kafka, source, capture, say)
        _refuse_taken(connect, kafka, capture)
        secret.store(password)
        undo.callback(secret.forget)
        say(f"setting up {len(wanted)} tables: publication, signal and heartbeat tables")
        source.setup(capture)
        undo.callback(source.teardown, capture)
        made = kafka.create(_topics(capture))
        undo.callback(kafka.delete, made)
        system = source.hold(capture).system
        entry = _register(registry, kafka, capture, kind, source.address, system)
        undo.callback(_unregister, registry, name)
        say("starting the connector")
        undo.callback(connect.delete, capture.connector)
        _to_its_end(connect.create, capture.connector, source.properties(capture))
        undo.callback(_stop_and_forget, connect, capture.connector)
        connect.forget_offsets(capture.connector)
        connect.resume(capture.connector)
        if wait:
            try:
                wait_streaming(context, name, say=say)
            except KeyboardInterrupt:
                undo.pop_all()
                raise
        undo.pop_all()
    registry.note(f"source {name}", "added", tables=[str(schema.table) for schema in capture.tables])
    return entry


def wait_streaming(
    context: Context, name: str, *, timeout: float | None = None, say: Say = lambda _: None
) -> None:
    """Return when the initial snapshot is complete and the connector holds its slot.

    Raises:
        SourceError: When the connector fails (``CONNECTOR_FAILED``), does not start
            (``CONNECTOR_NOT_STARTED``) or is not done within ``timeout`` seconds (``SOURCE_SLOW``).
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    source, capture, kafka = (
        source_of(context, entry),
        capture_of(context, entry),
        Kafka(context.kafka_bootstrap),
    )
    topics = [table.topic for table in entry.tables]
    expected = sum(source.estimate_rows([schema.table for schema in capture.tables]).values())
    began, told = time.monotonic(), ""
    with Connect(context.connect_url) as connect:
        while True:
            state = connect.state(capture.connector)
            if state.failed:
                raise SourceError(
                    f"The connector of {name} failed: {state.trace}",
                    code="CONNECTOR_FAILED",
                    hint=f"Mend the cause, then: headrace source resume {name}",
                )
            waited = time.monotonic() - began
            if not state.running and waited > _TASK_START_S:
                raise SourceError(
                    f"The connector of {name} did not start within {_TASK_START_S:.0f} s"
                    f" (connector {state.connector}, task {state.task}).",
                    code="CONNECTOR_NOT_STARTED",
                    hint="See Connect's log.",
                )
            if state.running:
                done = initial(kafka, capture).state is SnapshotState.COMPLETED
                if done and source.hold(capture).active:
                    registry.loaded(name)
                    return
                rows = sum(high for _, high in kafka.ends(topics).values())
                text = f"reading the tables: {rows:,} rows" + (f" of about {expected:,}" if expected else "")
                if text != told:
                    say(told := text)
            if timeout is not None and waited > timeout:
                raise SourceError(
                    f"{name} does not stream after {timeout:.0f} s.",
                    code="SOURCE_SLOW",
                    hint="The snapshot goes on; see `headrace lag`.",
                )
            time.sleep(0.2)


def remove(context: Context, name: str, *, say: Say = lambda _: None) -> None:
    """Remove connector, slot, publication, topics and registration; idempotent after a failure.

    Raises:
        UsageError: When sinks still read from it (``SOURCE_IN_USE``).
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    sinks = [sink.name for sink in registry.sinks(name)]
    if sinks:
        raise UsageError(
            f"Sinks still read from {name}: {', '.join(sinks)}.",
            code="SOURCE_IN_USE",
            hint=f"headrace sink remove {sinks[0]}",
        )
    source, capture = source_of(context, entry), capture_of(context, entry)
    with Connect(context.connect_url) as connect:
        say("stopping the connector")
        _stop_and_forget(connect, capture.connector)
        connect.delete(capture.connector)
    say("removing slot, publication and tables from the database")
    source.teardown(capture)
    say("removing topics")
    Kafka(context.kafka_bootstrap).delete([topic.name for topic in _topics(capture)])
    _unregister(registry, name)
    secret_of(context, name).forget()
    registry.note(f"source {name}", "removed")


def pause(context: Context, name: str) -> None:
    """Stop reading; the slot keeps the WAL, which grows."""
    registry = Registry(context.registry)
    with Connect(context.connect_url) as connect:
        connect.pause(capture_of(context, registry.source(name)).connector)
    registry.note(f"source {name}", "paused")


def resume(context: Context, name: str) -> None:
    """Read on, also after a failure.

    Raises:
        SourceError: When changes were lost meanwhile (``SOURCE_GAP``); reading on would hide it.
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    connector = capture_of(context, entry).connector
    reason = find_gap(context, entry)
    if reason:
        registry.gap(name, reason)
        raise SourceError(
            f"Changes of {name} are lost: {reason}.", code="SOURCE_GAP", hint=START_OVER.format(name=name)
        )
    with Connect(context.connect_url) as connect:
        connect.resume(connector)
        if connect.state(connector).failed:
            connect.restart(connector)
    registry.note(f"source {name}", "resumed")


def _refuse_unmeant(tables: Sequence[TableId], keys: Keys) -> None:
    unmeant = [str(table) for table in keys if table not in tables]
    if unmeant:
        raise UsageError(
            f"A key is declared for {', '.join(unmeant)}, which is not captured.",
            code="SOURCE_KEY_UNMEANT",
            hint="Names are case-sensitive: --key schema.table=column,column.",
        )


def _refuse_unfit(findings: Sequence[Finding]) -> None:
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise SourceError(
            " ".join(finding.message for finding in errors),
            code=errors[0].code if len(errors) == 1 else "SOURCE_UNFIT",
            hint="\n".join(finding.hint for finding in errors if finding.hint),
        )


def _clear_remains(connect: Connect, kafka: Kafka, source: Source, capture: Capture, say: Say) -> None:
    """Remove a connector that a killed ``add`` of ours left, with its topics and its slot.

    Connect may create it after the process that asked for it has died and been cleared away. It is ours when
    it reads its password from the file that we keep for a source of this name; the registry knows none.
    """
    left = connect.config(capture.connector)
    if left.get("database.password") != capture.password:
        return
    say(f"removing what an interrupted command left of {capture.source}")
    # Not stopped first: Connect refuses that when the file with the password is gone.
    connect.delete(capture.connector)
    kafka.delete([topic.name for topic in _topics(capture)])
    wanted = source.properties(capture)
    if all(left.get(name) == value for name, value in wanted.items() if name.startswith("database.")):
        source.teardown(capture)


def _refuse_taken(connect: Connect, kafka: Kafka, capture: Capture) -> None:
    # Connect forgets a deleted connector's state a little after it has answered.
    deadline = time.monotonic() + _FORGETS_S
    while (known := connect.state(capture.connector).connector) != "ABSENT":
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    if known != "ABSENT":
        raise SourceError(
            f"Connect runs a connector {capture.connector} that is not ours.",
            code="CONNECTOR_EXISTS",
            hint="Choose another source name.",
        )
    names = [topic_of(capture.source, schema.table) for schema in capture.tables]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SourceError(
            f"Two tables would share the topic {twice[0]}.",
            code="SOURCE_TOPIC_SHARED",
            hint="Kafka allows letters, digits, dot, dash and underscore in names; capture one of them.",
        )
    used = sorted({topic for (topic, _), (_, high) in kafka.ends(names).items() if high > 0})
    if used:
        raise SourceError(
            f"Kafka already holds records in {', '.join(used)}.",
            code="SOURCE_TOPICS_EXIST",
            hint="Choose another source name, or delete these topics.",
        )


def _topics(capture: Capture) -> list[Topic]:
    settings = capture.settings
    kept = {
        "cleanup.policy": "delete",
        "retention.ms": str(settings.retention_ms),
        "max.message.bytes": str(MAX_RECORD_BYTES),
    }
    passing = {"cleanup.policy": "delete", "retention.ms": str(24 * _HOUR_MS), "segment.ms": str(_HOUR_MS)}
    told = {"cleanup.policy": "delete", "retention.ms": "-1"}
    return [
        *(Topic(capture.topic(schema.table), settings.partitions, kept) for schema in capture.tables),
        Topic(capture.topic(capture.signals), 1, passing),
        Topic(capture.topic(capture.heartbeat), 1, passing),
        Topic(f"__debezium-heartbeat.{capture.source}", 1, passing),
        Topic(capture.notifications, 1, told),
    ]


def _register(
    registry: Registry, kafka: Kafka, capture: Capture, kind: str, address: str, system: str | None
) -> SourceEntry:
    topics: dict[str, TableSchema] = {capture.topic(schema.table): schema for schema in capture.tables}
    ids = kafka.ids(list(topics))
    entry = SourceEntry(
        name=capture.source,
        kind=kind,
        address=address,
        placeholder=capture.placeholder,
        settings=capture.settings.model_dump(),
        system=system,
        created_ms=now_ms(),
        loaded_ms=None,
        gap=None,
        tables=[
            SourceTableEntry(
                topic=topic,
                place=place,
                topic_id=ids[topic],
                epoch=registry.next_epoch(topic),
                table=schema.as_dict(),
            )
            for place, (topic, schema) in enumerate(topics.items())
        ],
    )
    with registry.begin() as session:
        session.add(entry)
    return entry


def _unregister(registry: Registry, name: str) -> None:
    with registry.begin() as session:
        found = session.get(SourceEntry, name)
        if found is not None:
            session.delete(found)


def _to_its_end(call: Callable[..., None], *arguments: object) -> None:
    """Do what cannot be undone while it is under way; Ctrl-C is heard when it has ended."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call, *arguments).result()


def _stop_and_forget(connect: Connect, connector: str) -> None:
    """End the task and remove its positions, so that a namesake later starts from nothing."""
    connect.stop(connector)
    connect.forget_offsets(connector)
