"""A connector that gave up comes back by itself when what made it give up is over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from typer.testing import CliRunner

from headrace.cli.context import open_context
from headrace.cli.main import app
from headrace.config.kafka import KafkaAddress
from headrace.config.source import SourceSettings
from headrace.control import connect as connecting
from headrace.control import lag, recover, sink, source
from headrace.control.connect import Connect
from headrace.control.runner import stop_engine
from headrace.model.errors import SourceError
from tests.support.database import fresh_database
from tests.support.mirror import KINDS, Mirror, mirrored, store_settings
from tests.support.patience import WAIT_S
from tests.support.remedy import bare, carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

TOPIC = "gaveup.public.t"


def refuse(mirror: Mirror, operation: AlterConfigOpType = AlterConfigOpType.SET) -> None:
    """Have Kafka refuse every record of the table's topic for its size."""
    admin = AdminClient(dict(KafkaAddress.parse(mirror.context.kafka_bootstrap).librdkafka()))
    entry = ConfigEntry("max.message.bytes", "100", incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)


@contextmanager
def refusing(mirror: Mirror) -> Iterator[None]:
    """Have Kafka refuse every record meanwhile."""
    refuse(mirror)
    try:
        yield
    finally:
        refuse(mirror, AlterConfigOpType.DELETE)


def test_a_first_load_that_fails_before_its_first_row_is_begun_again(stack: RunningStack) -> None:
    """The connector has noted a position by then, and would pass the snapshot over when it starts again."""
    context = open_context(stack.home.root)
    with fresh_database(stack.endpoints.postgres_dsn, "gaveup") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 500)")
        mirror = Mirror(context, stack, database, "gaveup")

        def say(doing: str) -> None:
            if doing.startswith("starting the connector"):
                refuse(mirror)

        beat = SourceSettings(heartbeat_ms=300)
        source.add(context, "gaveup", database.dsn, settings=beat, wait=False, say=say)
        try:
            sink.add(
                context, "gaveupcache", "redis", settings=store_settings(stack, "gaveup")["redis"], wait=False
            )
            with Connect(context.connect_url) as connect:
                until(lambda: connect.state("headrace_gaveup").failed)
                assert not mirror.in_sync
                refuse(mirror, AlterConfigOpType.DELETE)
                connect.restart("headrace_gaveup")
            mirror.settle()
            assert len(mirror.stored("t")["gaveupcache"]) == 500
            database.run("DELETE FROM t WHERE id = 7")
            mirror.settle()
            assert len(mirror.stored("t")["gaveupcache"]) == 499
        finally:
            sink.remove(context, "gaveupcache", purge=True)
            source.remove(context, "gaveup")


def test_a_connector_whose_records_kafka_refused_for_a_while(stack: RunningStack) -> None:
    with mirrored(
        stack, "gaveup", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"
    ) as mirror:
        mirror.settle()
        with Connect(mirror.context.connect_url) as connect, refusing(mirror):
            mirror.database.run("INSERT INTO t VALUES (2)", "DELETE FROM t WHERE id = 1")
            until(lambda: connect.state("headrace_gaveup").failed)
            assert not mirror.in_sync
        mirror.settle()
        assert all(rows.keys() == {"2"} for rows in mirror.stored("t").values())

        # A recovery that failed so goes on by the command that it prints.
        def say(doing: str) -> None:
            if doing.startswith("starting the connector"):  # its topics are made by then
                refuse(mirror)

        with pytest.raises(SourceError) as failed:
            recover.recover(mirror.context, "gaveup", say=say)
        assert failed.value.code == "CONNECTOR_FAILED"
        refuse(mirror, AlterConfigOpType.DELETE)
        carry_out(failed.value.hint, stack.home.root, mirror.database.run)
        mirror.settle()
        assert {name: set(rows) for name, rows in mirror.stored("t").items()} == {
            f"gaveup{short}": {"2"} for short in KINDS
        }
        assert {said.state for said in lag.measure(mirror.context).sources} == {lag.State.STREAMING}


def made(mirror: Mirror) -> None:
    """Write a row, and see it in every store."""
    mirror.database.run("INSERT INTO t SELECT max(id) + 1 FROM t")
    mirror.settle()
    wanted = {str(number) for (number,) in mirror.database.run("SELECT id FROM t")}
    assert all(set(rows) == wanted for rows in mirror.stored("t").values())


def test_one_that_gave_up_while_nobody_watches_is_resumed_as_lag_tells(stack: RunningStack) -> None:
    with mirrored(
        stack, "gaveup", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"
    ) as mirror:
        made(mirror)
        stop_engine(mirror.context.run)  # with it goes who starts it again by itself
        with Connect(mirror.context.connect_url) as connect, refusing(mirror):
            mirror.database.run("INSERT INTO t VALUES (8)")
            until(lambda: connect.state("headrace_gaveup").failed)
        report = lag.measure(mirror.context)
        (said,) = report.sources
        assert (said.state, said.remedy) == (lag.State.FAILED, "headrace source resume gaveup")
        for remedy in dict.fromkeys([said.remedy, *(found.remedy for found in report.sinks)]):
            carry_out(remedy or "", stack.home.root, mirror.database.run)
        made(mirror)


def test_a_connector_that_takes_its_time(stack: RunningStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told about one that has not stopped or started yet leads on, wherever it is told."""
    with mirrored(
        stack, "gaveup", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"
    ) as mirror:
        made(mirror)
        monkeypatch.setenv("GAVEUP", urlsplit(mirror.database.dsn).password or "")
        for words, told in (
            (["source", "rotate", "gaveup", "env:GAVEUP"], "headrace source resume gaveup"),
            (["recover", "gaveup"], "headrace recover gaveup"),
        ):
            with monkeypatch.context() as hurried:
                hurried.setattr(connecting, "_CHANGES_S", 0.0)
                done = CliRunner().invoke(app, [*words, "--json", "--home", str(stack.home.root)])
            error = json.loads(bare(done.stderr.splitlines()[-1]))["error"]
            assert (error["code"], error["hint"]) == ("CONNECTOR_NOT_RUNNING", told)
            carry_out(told, stack.home.root, mirror.database.run)
            made(mirror)
