"""Somebody breaks a source behind our back: told by name at the next look, and not gone on from."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.kafka import KafkaAddress
from headrace.config.source import SourceSettings
from headrace.control import lag, source
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.lag import State
from headrace.control.registry import Registry
from headrace.model.errors import SourceError
from tests.support.database import Database, fresh_database
from tests.support.patience import WAIT_S
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(300)]

ACTIVE = "SELECT active FROM pg_replication_slots WHERE slot_name = 'headrace_broken'"


@pytest.fixture
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "broken") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 9)")
        source.add(context, "broken", database.dsn, settings=SourceSettings(heartbeat_ms=300))
        yield database
        source.remove(context, "broken")


def seen(context: Context) -> lag.SourceLag:
    return next(found for found in lag.measure(context).sources if found.source == "broken")


def at_rest(context: Context, database: Database) -> None:
    """End the connector's task, as an operator can, and write a row that it has not read."""
    with Connect(context.connect_url) as connect:
        connect.stop("headrace_broken")
    until(lambda: not database.value(ACTIVE))
    database.run("INSERT INTO t VALUES (100)")


def told_for_good(context: Context, why: str) -> None:
    """Wait for the verdict; it names the remedy, and resuming is refused."""
    until(lambda: seen(context).state is State.RESYNC_REQUIRED)
    assert why in seen(context).reason
    assert seen(context).remedy == "headrace recover broken"
    with pytest.raises(SourceError) as caught:
        source.resume(context, "broken")
    assert (caught.value.code, caught.value.hint) == ("SOURCE_GAP", "headrace recover broken")
    assert seen(context).state is State.RESYNC_REQUIRED


def test_a_slot_whose_log_was_removed(context: Context, database: Database) -> None:
    """P4."""
    at_rest(context, database)
    database.run("ALTER SYSTEM SET max_slot_wal_keep_size = '32MB'", "SELECT pg_reload_conf()")
    try:
        for _ in range(5):
            database.run(
                "SELECT pg_logical_emit_message(false, 'x', 'y')", "SELECT pg_switch_wal()", "CHECKPOINT"
            )
    finally:
        database.run("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
    told_for_good(context, "slot")


def test_positions_that_connect_has_lost(context: Context, database: Database) -> None:
    """B8."""
    at_rest(context, database)
    with Connect(context.connect_url) as connect:
        until(lambda: connect.state("headrace_broken").task == "ABSENT")
        connect.forget_offsets("headrace_broken")
    told_for_good(context, "Connect has lost the position")


def test_a_connector_that_somebody_deleted_or_that_gave_up(context: Context, database: Database) -> None:
    """B7: both are told, the second with why."""
    with Connect(context.connect_url) as connect:
        config = connect.config("headrace_broken")
        connect.delete("headrace_broken")
        until(lambda: seen(context).state in (State.FAILED, State.RESYNC_REQUIRED, State.DEGRADED))
        assert not lag.measure(context).in_sync
        # Put back with a setting that no connector can work with: it gives up, and says why.
        httpx.post(
            f"{context.connect_url}/connectors",
            json={"name": "headrace_broken", "config": {**config, "publication.name": "none"}},
            timeout=WAIT_S,
        ).raise_for_status()
        until(lambda: connect.state("headrace_broken").failed)
        until(lambda: seen(context).state in (State.FAILED, State.RESYNC_REQUIRED))
        assert seen(context).reason


def test_no_topic_of_a_source_is_compacted(context: Context, database: Database) -> None:
    """B6: a replay from the start finds every delete, whatever the broker's own default is."""
    admin = AdminClient({**KafkaAddress.parse(context.kafka_bootstrap).librdkafka()})
    names = [name for name in admin.list_topics(timeout=WAIT_S).topics if "broken" in name]
    assert "broken.public.t" in names
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    told = {
        resource.name: future.result(WAIT_S)["cleanup.policy"].value
        for resource, future in admin.describe_configs(asked).items()
    }
    assert told == dict.fromkeys(names, "delete")


def test_a_database_that_is_gone_lets_its_source_be_removed(context: Context, stack: RunningStack) -> None:
    with fresh_database(stack.endpoints.postgres_dsn, "vanished") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        source.add(context, "vanished", database.dsn, settings=SourceSettings(heartbeat_ms=300))
        with Connect(context.connect_url) as connect:
            connect.stop("headrace_vanished")
    with pytest.raises(SourceError) as caught:
        source.remove(context, "vanished")
    assert caught.value.code == "SOURCE_UNREACHABLE"
    _, _, command = caught.value.hint.partition(": headrace ")
    done = CliRunner().invoke(app, [*command.split(), "--home", str(stack.home.root)])
    assert done.exit_code == 0, done.output
    assert "pg_drop_replication_slot" in done.output
    assert "vanished" not in [entry.name for entry in Registry(context.registry).sources()]
