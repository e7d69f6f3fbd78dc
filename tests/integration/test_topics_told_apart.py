"""Tables whose topics Kafka does not tell apart, on a real broker."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.source import SourceSettings
from headrace.control import source, source_check, tables
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry
from headrace.model.errors import HeadraceError
from headrace.model.finding import Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(400)]

NAME = "apart"
FIRST, LATER = TableId("sales", "eu_orders"), TableId("sales_eu", "orders")
BEAT = SourceSettings(heartbeat_ms=300)


@pytest.fixture
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, NAME) as made:
        made.run("CREATE SCHEMA sales", "CREATE SCHEMA sales_eu", "CREATE SCHEMA eu_orders")
        made.run(f"CREATE TABLE {FIRST} (id int PRIMARY KEY)", f"CREATE TABLE {LATER} (id int PRIMARY KEY)")
        made.run("CREATE TABLE eu_orders.t (id int PRIMARY KEY)", "CREATE TABLE plain (id int PRIMARY KEY)")
        source.add(context, NAME, made.dsn, tables=[FIRST], settings=BEAT)
        yield made
        for entry in Registry(context.registry).sources():
            source.remove(context, entry.name)


def test_a_table_that_comes_later_is_captured_as_the_refusal_tells(
    context: Context, stack: RunningStack, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HeadraceError) as caught:
        tables.take_in(context, NAME, [LATER])
    assert caught.value.code == "SOURCE_TOPIC_SHARED"
    assert f"{NAME}.{FIRST} and {NAME}.{LATER}" in caught.value.message
    monkeypatch.setenv("URL", database.dsn)
    told = caught.value.hint.partition(": ")[2].replace("NAME", "second").replace("SCHEMA.TABLE", str(LATER))
    words = shlex.split(told.removeprefix("headrace "))
    done = CliRunner().invoke(app, [*words, "--home", str(stack.home.root)])
    assert done.exit_code == 0, done.output


def test_a_table_of_another_source_is_told_by_check_and_add(context: Context, database: Database) -> None:
    """Sources may share the beginning of their names all the same."""
    database.run("CREATE SCHEMA eu", "CREATE TABLE eu.orders (id int PRIMARY KEY)")
    wanted, name = [TableId("eu", "orders")], f"{NAME}_sales"
    found = source_check.check(database.dsn, tables=wanted, place=(context, name))
    assert [one.code for one in found if one.severity is Severity.ERROR] == ["SOURCE_TOPIC_SHARED"]
    with pytest.raises(HeadraceError) as caught:
        source.add(context, name, database.dsn, tables=wanted, settings=BEAT)
    assert caught.value.code == "SOURCE_TOPIC_SHARED"
    source.add(context, name, database.dsn, tables=[TableId("eu_orders", "t")], settings=BEAT)


def test_topics_beside_one_that_kafka_refuses_do_not_stay(
    context: Context, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has made that name since it was asked for."""
    kafka = Kafka(context.kafka_bootstrap)
    before = kafka.names()
    with monkeypatch.context() as patched:
        patched.setattr(tables, "refuse_used", lambda *_: None)
        with pytest.raises(HeadraceError) as caught:
            tables.take_in(context, NAME, [TableId("public", "plain"), LATER])
    assert caught.value.code == "KAFKA_REFUSED"
    assert kafka.names() == before
