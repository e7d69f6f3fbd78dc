"""A source's life: checked, set up in the database, registered with Connect, removed without a trace."""

from __future__ import annotations

import secrets as random
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from connectors import registry as kinds
from connectors.base import WHILE_AWAY, Capture, Keys, Source
from headrace.config.secrets import SecretRef
from headrace.config.source import SourceSettings, valid_name
from headrace.control.adding import begun_source, is_same_source, note, source_exists
from headrace.control.alone import only_one
from headrace.control.begun import Before, Undo, begin, end, keep, making, registered
from headrace.control.capture import capture_of, secret_of, source_of
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.epochs import next_epochs
from headrace.control.first_load import leave_to_run, wait_loaded
from headrace.control.fitness import findings_of, refuse_unfit, refuse_unmeant, without_unfit
from headrace.control.gap import find_gap, gap_error
from headrace.control.kafka import Kafka
from headrace.control.lost import password_left
from headrace.control.newcomers import listed
from headrace.control.pipelines import orphans, withdraw
from headrace.control.registry import Adding, Registry, SourceEntry, SourceTableEntry, now_ms
from headrace.control.runner import ensure_engine
from headrace.control.source_check import is_remains, refuse_taken
from headrace.control.source_remove import Say, close, let_go, remove, stop_and_forget
from headrace.control.spared import Unfit
from headrace.control.streaming import wait_streaming
from headrace.control.topics import topics_of
from headrace.control.watcher import look_now
from headrace.control.worker import bounds, missing, refuse_without
from headrace.model.errors import HeadraceError, SourceError, UsageError
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId, TableSchema

_FORGETS_S = 15.0
"""Connect forgets a deleted connector's state a little after it has answered."""

__all__ = ["Say", "add", "pause", "remove", "resume"]


def add(
    context: Context,
    name: str,
    url: str,
    *,
    tables: Sequence[TableId] = (),
    schemas: Sequence[str] = ("public",),
    keys: Keys | None = None,
    settings: SourceSettings | None = None,
    skip_unfit: bool = False,
    wait: bool = True,
    say: Say = lambda _: None,
    warn: Callable[[Finding], None] = lambda _: None,
    skipped: Callable[[Unfit], None] = lambda _: None,
) -> SourceEntry:
    """Register a database and start its connector; with ``wait`` return when it streams and all is read.

    With ``skip_unfit`` tables that cannot be followed are left out by name, and ``skipped`` is told which and
    why; else one of them refuses all.
    Without ``wait`` it returns as soon as the connector is created; its snapshot goes on.
    When anything fails, what was made is removed again. One that was killed is given again as it stands: it
    goes on where the other has stopped, or begins anew. ``warn`` is told what the check warns of, before
    anything is made.

    Raises:
        UsageError: When the name is taken or cannot be one, or a key is declared for a table not captured.
        SourceError: When the database is unfit, with every reason, or the connector fails.
        StackError: When Kafka or Connect does not answer.
    """
    valid_name(name, of="source")
    registry = Registry(context.registry)
    with only_one(context, "source", name, f"`headrace source add {name}`", say):
        begun = begun_source(registry, name)
        kind = kinds.kind_of(url)
        kept = password_left(context, name, url)
        settings = settings or SourceSettings()
        left = settings.columns_left_out
        source = kinds.reached(url, kept, left)
        wanted = list(tables) or source.tables(schemas)
        if begun is not None and not is_same_source(begun, source, wanted, keys or {}, settings, skip_unfit):
            raise source_exists(name)
        if begun is not None and _is_gone_on_with(context, registry, begun, say, wait=wait):
            return begun
        # Without a choice all were taken, and what comes later is new.
        left_out = set(source.tables(sorted({t.schema for t in tables}))) - set(wanted) if tables else set()
        plugins = _fit_worker(context, source)
        settings = settings.model_copy(update={"bounded": bounds(plugins)})
        say("checking the database")
        refuse_unmeant(wanted, keys or {}, left)
        findings = [*missing(plugins), *findings_of(source, wanted, keys, settings)]
        fit, unfit = without_unfit(findings, wanted)
        if skip_unfit and fit:
            skipped(unfit)
            for table, why in unfit.items():
                say(f"leaving {table} out: {' '.join(one.message for one in why)}")
            findings = [one for one in findings if one.table not in unfit]
            left_out |= set(unfit)
            wanted, keys = fit, {table: key for table, key in (keys or {}).items() if table in fit}
        with _with_way_out(fit, () if skip_unfit else unfit):
            refuse_unfit(findings)
        for finding in findings:
            if finding.severity is Severity.WARNING:
                warn(finding)
        password = source.password
        secret = secret_of(context, name)
        capture = Capture(
            source=name,
            tables=tuple(source.catalogue(wanted, keys)),
            placeholder=f"__headrace_unavailable_{random.token_hex(8)}",
            password=secret.placeholder,
            settings=settings,
        )
        source.properties(capture)  # an address that the connector does not take is refused before all else
        stays: list[str] = []
        with _telling(stays), Connect(context.connect_url) as connect, Undo() as undo:
            kafka = Kafka(context.kafka_bootstrap)
            _clear_remains(context, connect, kafka, source, capture, say)
            refuse_taken(connect, kafka, source, capture, patience_s=_FORGETS_S)
            topics, known = topics_of(capture), kafka.names()
            # A file that is there is of a source that the registry has lost.
            before = Before(frozenset(known.intersection(one.name for one in topics)), secret.path.exists())
            capture = replace(capture, system=source.hold(capture).system)
            # Each step is to be taken back before it is done: one whose answer is lost may have done all.
            undo.callback(_end, undo, registry, secret, capture, before, stays, say)
            begin(registry, capture, kind, source.address, before)
            secret.store(password)
            making(registry, name)
            say(f"setting up {len(wanted)} tables: publication, signal and heartbeat tables")
            undo.surely(lambda: stays.extend(_take_back(source, capture, say)))
            source.setup(capture)
            undo.surely(kafka.delete, [one.name for one in topics if one.name not in known])
            kafka.create(topics)
            undo.surely(keep, registry, name, capture.placeholder, before)
            with _nothing_of_others(undo):
                entry = _register(registry, kafka, capture, kind, source, left_out)
            with _kept_when_used(registry, name, undo):
                capture = replace(capture, timeline=entry.timeline, system=entry.system)
                large = source.large(capture.tables, settings.load_by_run_mib)
                leave_to_run(registry, entry, large)
                look_now(context, name)
                ensure_engine(context)  # its watcher lets the application go first, and begins runs
                say("starting the connector")
                undo.surely(connect.delete, capture.connector)
                _to_its_end(connect.create, capture.connector, source.properties(capture, large))
                undo.surely(stop_and_forget, connect, capture.connector)
                connect.forget_offsets(capture.connector)
                connect.resume(capture.connector)
                note(registry, entry, Adding.STARTED)
                if large:
                    say(f"a run is to read {', '.join(map(str, large))}: `headrace resnapshot list`")
                if wait:
                    _wait(context, name, undo, say)
            undo.pop_all()
        _added(registry, entry)
    if wait:
        wait_loaded(context, name, say)
    return entry


def _wait(context: Context, name: str, undo: Undo, say: Say) -> None:
    """Wait until a new source streams; it is kept when somebody waits no more."""
    try:
        wait_streaming(context, name, again="add the source again", say=say)
    except KeyboardInterrupt:
        undo.keep()
        raise


@contextmanager
def _kept_when_used(registry: Registry, name: str, undo: Undo) -> Iterator[None]:
    """Take nothing back of a source that is refused and from which a sink reads by now."""
    try:
        yield
    except BaseException:
        if not undo.kept and not close(registry, name):
            undo.keep()
        raise


def _is_gone_on_with(
    context: Context, registry: Registry, entry: SourceEntry, say: Say, *, wait: bool
) -> bool:
    """Wait for what a command that was killed has started; let go of what is not at work, or does not load.

    Returns:
        Whether it is added now; else nothing of it is left.
    """
    if entry.adding != Adding.STARTED.value:
        say("removing what a command that was killed had begun")
        let_go(context, entry.name, say)
        return False
    say("going on with what a command that was killed has started")
    ensure_engine(context)  # the machine may have been started anew since
    try:
        if wait:
            wait_streaming(context, entry.name, again="add the source again", say=say)
    except HeadraceError:
        if registry.source(entry.name).loaded_ms is None and not registry.sinks(entry.name):
            let_go(context, entry.name, say)
        raise
    _added(registry, entry)
    if wait:
        wait_loaded(context, entry.name, say)
    return True


def _added(registry: Registry, entry: SourceEntry) -> None:
    note(registry, entry, None)
    tables = [str(table.schema.table) for table in entry.tables]
    registry.note(f"source {entry.name}", "added", tables=tables)


@contextmanager
def _nothing_of_others(undo: ExitStack) -> Iterator[None]:
    """Take nothing back when another command has registered the name: what there is may be that one's."""
    try:
        yield
    except UsageError as error:
        if error.code == "SOURCE_EXISTS":
            undo.pop_all()
        raise


@contextmanager
def _with_way_out(fit: Sequence[TableId], unfit: Collection[TableId]) -> Iterator[None]:
    """Have a refusal over some of the tables say how to go on with the others."""
    try:
        yield
    except SourceError as error:
        if fit and unfit:
            named = ", ".join(map(str, sorted(unfit, key=str)))
            error.hint += f"\nOr leave {named} out: add --skip-unfit."
        raise


def _fit_worker(context: Context, source: Source) -> frozenset[str]:
    """Return the classes that the worker has; refuse one that lacks the connector."""
    with Connect(context.connect_url) as connect:
        plugins = connect.plugins()
    refuse_without(plugins, source.connector_class)
    return plugins


def pause(context: Context, name: str) -> list[Finding]:
    """Stop reading; the slot keeps the WAL, which grows.

    Returns:
        What the database does to the slot or to its disk meanwhile; nothing when it does not answer.
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    with Connect(context.connect_url) as connect:
        connect.pause(capture_of(context, entry).connector)
    registry.note(f"source {name}", "paused")
    try:
        return [found for found in source_of(context, entry).preflight([]) if found.code in WHILE_AWAY]
    except HeadraceError:
        return []


def resume(context: Context, name: str) -> None:
    """Read on, also after a failure.

    Raises:
        SourceError: When changes were lost meanwhile (``SOURCE_GAP``); reading on would hide it.
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    connector = capture_of(context, entry).connector
    reason = find_gap(context, entry, acts=True)
    if reason:
        registry.gap(entry, reason)
        raise gap_error(context, entry, reason)
    with Connect(context.connect_url) as connect:
        connect.resume(connector)
        if connect.state(connector).failed:
            connect.restart(connector)
    registry.note(f"source {name}", "resumed")


def _clear_remains(
    context: Context, connect: Connect, kafka: Kafka, source: Source, capture: Capture, say: Say
) -> None:
    """Remove a connector that a killed ``add`` of ours left, with its topics and its slot.

    Connect may create it after the process that asked for it has died and been cleared away.
    """
    if not is_remains(connect, capture):
        return
    left = source.fenced(capture, connect.config(capture.connector), None)  # whatever timeline it was for
    say(f"removing what an interrupted command left of {capture.source}")
    for lost in orphans(context, Registry(context.registry)):
        if lost.source == capture.source:
            say(f"stopping sink {lost.sink}, which the registry has lost; its target stays as it is")
            withdraw(context, lost.sink)
    # Not stopped first: Connect refuses that when the file with the password is gone.
    connect.delete(capture.connector)
    kafka.delete([topic.name for topic in topics_of(capture)])
    wanted = source.properties(capture)
    if all(left.get(name) == value for name, value in wanted.items() if name.startswith("database.")):
        _take_back(source, capture, say)


def _take_back(source: Source, capture: Capture, say: Say) -> tuple[str, ...]:
    """Remove from the database what a refused command has made; return what removes what is not let go."""
    try:
        left = source.teardown(capture)
    except SourceError as error:  # what the command was refused for says more
        say(f"what was made could not be taken back: {error.message}")
        return source.leftovers(capture)
    if left.why:
        say(f"{left.why}; what stays is removed by whoever may run: {' '.join(left.statements)}")
    return left.statements


def _end(
    undo: Undo,
    registry: Registry,
    secret: SecretRef,
    capture: Capture,
    before: Before,
    stays: Collection[str],
    say: Say,
) -> None:
    """Forget a command that was refused, unless not all that it made is gone."""
    if undo.whole and not stays:
        end(registry, secret, capture.source, before, capture.placeholder)
    else:
        say(f"what could not be taken back is removed by: headrace source remove {capture.source}")


@contextmanager
def _telling(stays: list[str]) -> Iterator[None]:
    """Have a refusal end with the statements that remove what stays in the database."""
    try:
        yield
    except HeadraceError as error:
        if stays:
            error.hint = (
                f"{error.hint}\nWhat is left is removed by whoever may run: {' '.join(stays)}".strip()
            )
        raise


def _register(
    registry: Registry, kafka: Kafka, capture: Capture, kind: str, source: Source, left_out: set[TableId]
) -> SourceEntry:
    topics: dict[str, TableSchema] = {capture.topic(schema.table): schema for schema in capture.tables}
    ids = kafka.ids(list(topics))
    epochs = next_epochs(registry, kafka, list(topics))
    hold = source.hold(capture)
    entry = SourceEntry(
        name=capture.source,
        kind=kind,
        address=source.address,
        placeholder=capture.placeholder,
        settings=capture.settings.model_dump(),
        system=hold.system,
        timeline=hold.timeline,
        created_ms=now_ms(),
        loaded_ms=None,
        gap=None,
        adding=Adding.REGISTERED.value,
        left_out=listed(left_out),
        tables=[
            SourceTableEntry(
                topic=topic,
                place=place,
                topic_id=ids[topic],
                epoch=epochs[topic],
                table=schema.as_dict(),
            )
            for place, (topic, schema) in enumerate(topics.items())
        ],
    )
    with registry.begin() as session:
        if session.get(SourceEntry, entry.name) is not None:
            raise source_exists(entry.name)
        session.add(entry)
        registered(session, entry.name)
    return entry


def _to_its_end(call: Callable[..., None], *arguments: object) -> None:
    """Do what cannot be undone while it is under way; Ctrl-C is heard when it has ended."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call, *arguments).result()
