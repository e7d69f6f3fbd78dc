"""`source add`, `sink add` are killed after each step: the same command works, nothing is left in the end."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.opened import opened_sink
from headrace.control.registry import Registry
from headrace.model.errors import UsageError
from tests.support.database import Database, fresh_database
from tests.support.leftovers import left_by_sink, left_by_source
from tests.support.mirror import store_settings
from tests.support.patience import WAIT_S
from tests.support.stack import RunningStack
from tests.support.waiting import settle, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "slain"
BEAT = SourceSettings(heartbeat_ms=300)
BY_RUNS = SourceSettings(heartbeat_ms=300, load_by_run_mib=0)
"""Runs read the rows of every table."""


def table(name: str) -> tuple[str, str]:
    """Return what makes a table of fifty rows."""
    return (
        f"CREATE TABLE {name} (id int PRIMARY KEY, name text)",
        f"INSERT INTO {name} SELECT i, 'n' || i FROM generate_series(1, 50) i",
    )


GOODS = table("goods")
TABLES = ("goods", "makers", "orders")
SHOP = tuple(statement for name in TABLES for statement in table(name))
ONE = "/1"
"""Ends a step of several topics or targets of which only the first is made."""
SOURCE_STEPS = (
    "headrace.control.source:begin",
    "headrace.config.secrets:SecretRef.store",
    "headrace.control.source:making",
    "connectors.postgres:PostgresSource.setup",
    f"headrace.control.kafka:Kafka.create{ONE}",
    "headrace.control.kafka:Kafka.create",
    "headrace.control.source:_register",
    "headrace.control.source:leave_to_run",
    "headrace.control.source:look_now",
    "headrace.control.source:ensure_engine",
    "headrace.control.connect:Connect.create",
    "headrace.control.connect:Connect.forget_offsets",
    "headrace.control.connect:Connect.resume",
    "headrace.control.source:note",
    "headrace.control.source:wait_streaming",
)
LAST_STEPS = ("headrace.control.source:_added", "headrace.control.source:wait_loaded")
"""A source of which they were done is added."""
SINK_STEPS = (
    "headrace.control.sink:seal",
    "headrace.control.sink:note_targets",
    f"headrace.control.sink:create{ONE}",
    "headrace.control.sink:create",
    f"headrace.control.targets:claim_targets{ONE}",
    "headrace.control.sink:begin",
    "headrace.control.sink:_register",
    "headrace.control.sink:discard_run",
    "headrace.control.sink:write_private",
    "headrace.control.sink:note",
    "headrace.control.sink:ensure_engine",
    "headrace.control.sink:wait_running",
    "headrace.control.sink:sweep_new_sink",
)
KINDS = ("elasticsearch", "redis", "delta")
STORE_STEPS = (ONE, ":create", ":begin", ":wait_running")
"""Those that have to do with the store; the others are the same for each, but for one without a password."""
KILLED = [
    *((step, kind) for step in SINK_STEPS for kind in (KINDS if step.endswith(STORE_STEPS) else ("redis",))),
    ("headrace.control.sink:note_targets", "delta"),
]
SCRIPT = """
    import importlib, os, signal, sys
    from pathlib import Path
    from headrace.cli.context import open_context
    from headrace.config.source import SourceSettings
    from headrace.control import sink, source, tables
    from headrace.model.schema import TableId

    place, home, what, *arguments = sys.argv[1:]
    place, *of_several = place.split("/")
    module, _, name = place.partition(":")
    *owners, last = name.split(".")
    owner = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    call = getattr(owner, last)

    def dies(*args, **named):
        if of_several:
            *others, several = args
            args = (*others, several[:1])
        call(*args, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, last, dies)
    context = open_context(Path(home))
    if what == "tables":
        name, *told = arguments
        tables.take_in(context, name, [TableId("public", table) for table in told])
    elif what == "source":
        name, url, settings = arguments
        source.add(context, name, url, settings=SourceSettings.model_validate_json(settings))
    else:
        name, kind, at, source = arguments
        settings = {"path" if kind == "delta" else "url": at}
        sink.add(context, name, kind, settings=settings, source=source)
"""


def killed(context: Context, place: str, *arguments: str) -> None:
    """Carry out an ``add`` in a process that dies as soon as a step of it has returned."""
    home = str(context.registry.parent)
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), place, home, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT_S, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def settings_of(step: str) -> SourceSettings:
    """Return the settings with which there is anything to be done in a step."""
    return BY_RUNS if step.endswith((":leave_to_run", ":wait_loaded")) else BEAT


def killed_in(context: Context, step: str, database: Database) -> SourceSettings:
    """Have a ``source add`` die in a step; return the settings that it was given."""
    settings = settings_of(step)
    killed(context, step, "source", NAME, database.dsn, settings.model_dump_json())
    return settings


@pytest.fixture
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, NAME) as database:
        database.run(*SHOP)
        yield database


@pytest.fixture(scope="module")
def source_of_sinks(stack: RunningStack, context: Context) -> Iterator[str]:
    """Return the name of a source that sinks come to and go from."""
    name = "sinkskilled"
    with fresh_database(stack.endpoints.postgres_dsn, name) as database:
        database.run(*SHOP)
        source.add(context, name, database.dsn, settings=BEAT)
        try:
            yield name
        finally:
            source.remove(context, name)
        assert left_by_source(context, database, name) == {}


def states(context: Context) -> dict[str, lag.State]:
    return {told.source: told.state for told in lag.measure(context).sources}


def refused_as_there(context: Context, database: Database, settings: SourceSettings) -> None:
    with pytest.raises(UsageError, match="already"):
        source.add(context, NAME, database.dsn, settings=settings)


def is_whole_until_removed(context: Context, database: Database) -> None:
    until(lambda: states(context)[NAME] is lag.State.STREAMING)
    for name in TABLES:
        rows, _ = Kafka(context.kafka_bootstrap).committed(f"{NAME}.public.{name}")
        assert sorted(row["after"]["id"] for row in rows) == list(range(1, 51))
    source.remove(context, NAME)
    assert left_by_source(context, database, NAME) == {}


@pytest.mark.parametrize("step", SOURCE_STEPS)
def test_source_add_is_killed(context: Context, database: Database, step: str) -> None:
    """Whichever step it has come to, the same command works; before that no other may have the name."""
    settings = killed_in(context, step, database)
    lag.measure(context)
    if NAME in states(context):
        refused_as_there(context, database, SourceSettings(heartbeat_ms=400))
    source.add(context, NAME, database.dsn, settings=settings)
    refused_as_there(context, database, settings)
    is_whole_until_removed(context, database)


@pytest.mark.parametrize("step", LAST_STEPS)
def test_source_add_is_killed_when_all_is_done(context: Context, database: Database, step: str) -> None:
    settings = killed_in(context, step, database)
    refused_as_there(context, database, settings)
    is_whole_until_removed(context, database)


@pytest.mark.parametrize("step", SOURCE_STEPS)
def test_source_add_is_killed_and_never_given_again(context: Context, database: Database, step: str) -> None:
    """Whatever was made is told by its name, and goes by that."""
    killed_in(context, step, database)
    assert NAME in states(context)
    source.remove(context, NAME)
    assert NAME not in states(context)
    assert left_by_source(context, database, NAME) == {}


@pytest.mark.parametrize(("step", "kind"), KILLED)
def test_sink_add_is_killed(
    context: Context, source_of_sinks: str, stack: RunningStack, step: str, kind: str
) -> None:
    settings = store_settings(stack, NAME)[kind]
    killed(context, step, "sink", NAME, kind, *settings.values(), source_of_sinks)
    lag.measure(context)
    sink.add(context, NAME, kind, settings=settings, source=source_of_sinks)
    settle(context)
    registry = Registry(context.registry)
    with opened_sink(registry.sink(NAME)) as opened:
        counted = [sum(1 for _ in opened.scan(t.schema)) for t in registry.source(source_of_sinks).tables]
    assert counted == [50] * len(TABLES)
    sink.remove(context, NAME, purge=True)
    assert left_by_sink(context, stack, NAME, source_of_sinks, stack.endpoints.lake_path / NAME) == {}


@pytest.mark.parametrize(("step", "kind"), KILLED)
def test_sink_add_is_killed_and_never_given_again(
    context: Context, source_of_sinks: str, stack: RunningStack, step: str, kind: str
) -> None:
    """Whatever was made is told by its name, and goes by that."""
    settings = store_settings(stack, NAME)[kind]
    killed(context, step, "sink", NAME, kind, *settings.values(), source_of_sinks)
    assert NAME in {told.sink for told in lag.measure(context).sinks}
    sink.remove(context, NAME, purge=True)
    assert NAME not in {told.sink for told in lag.measure(context).sinks}
    assert left_by_sink(context, stack, NAME, source_of_sinks, stack.endpoints.lake_path / NAME) == {}
