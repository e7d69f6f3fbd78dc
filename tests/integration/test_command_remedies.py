"""What commands about sources, sinks and lag print when they refuse, carried out as it is printed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.kafka import KafkaAddress
from headrace.control import sink, source
from headrace.control.kafka import Kafka
from headrace.model.errors import HeadraceError, SourceError
from tests.support.database import fresh_database
from tests.support.mirror import Mirror, mirrored
from tests.support.patience import WAIT_S
from tests.support.remedy import carry_out, refused
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(600)]

NAME, OTHER, THIRD = "words", "wordsother", "wordsthird"


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        NAME,
        "CREATE TABLE notes (id int PRIMARY KEY, v text)",
        "INSERT INTO notes SELECT i, 'v' || i FROM generate_series(1, 30) i",
    ) as made:
        made.settle()
        yield made


def done(mirror: Mirror, remedy: str) -> str:
    return carry_out(remedy, mirror.stack.home.root, mirror.database.run)


def test_to_watch_and_to_wait_at_once(mirror: Mirror) -> None:
    mirror.settle()
    told = refused(mirror.stack.home.root, "lag", "--watch", "--wait", "5")
    assert told["code"] == "LAG_WATCH_OR_WAIT"
    done(mirror, told["hint"])


def test_a_wait_that_ends_before_all_is_shown(mirror: Mirror) -> None:
    """What it tells shows why, and that can be mended."""
    mirror.settle()
    mirror.pause("cache")
    mirror.database.run("UPDATE notes SET v = 'meanwhile' WHERE id = 1")
    told = refused(mirror.stack.home.root, "lag", "--wait", "1")
    assert told["code"] == "LAG_NOT_IN_SYNC"
    shown = done(mirror, told["hint"])
    assert f" sink resume {NAME}cache" in shown
    done(mirror, f"headrace sink resume {NAME}cache")
    mirror.settle()


def test_a_sink_whose_source_is_not_named_and_a_source_without_its_last_table(
    mirror: Mirror, stack: RunningStack
) -> None:
    words = ["sink", "add", THIRD, "--kind", "redis", "--url", stack.endpoints.redis_url]
    with fresh_database(stack.endpoints.postgres_dsn, OTHER) as database:
        database.run("CREATE TABLE single (id int PRIMARY KEY)", "INSERT INTO single VALUES (1)")
        source.add(mirror.context, OTHER, database.dsn)
        try:
            told = refused(mirror.stack.home.root, *words)
            assert told["code"] == "SOURCE_UNNAMED"
            option, names = told["hint"].removeprefix("Use ").rstrip(".").split(" with one of: ")
            assert {NAME, OTHER} <= set(names.split(", "))
            done(mirror, shlex.join(["headrace", *words, option, OTHER]))
            last = refused(mirror.stack.home.root, "source", "tables", "remove", OTHER, "public.single")
            assert (last["code"], last["hint"]) == ("TABLE_LAST", f"headrace source show {OTHER}")
            assert "public.single" in done(mirror, last["hint"])
            used = refused(mirror.stack.home.root, "source", "remove", OTHER)
            assert used["code"] == "SOURCE_IN_USE"
            done(mirror, used["hint"])
            done(mirror, f"headrace source remove {OTHER}")
        finally:
            for left in (sink.remove, source.remove):
                with suppress(HeadraceError):
                    left(mirror.context, THIRD if left is sink.remove else OTHER)


def test_a_topic_that_lacks_rows_for_a_sink_to_come(mirror: Mirror, stack: RunningStack) -> None:
    mirror.settle()
    topic, kafka = f"{NAME}.public.notes", Kafka(mirror.context.kafka_bootstrap)
    admin = AdminClient({**KafkaAddress.parse(mirror.context.kafka_bootstrap).librdkafka()})
    end = kafka.ends([topic])[topic, 0][1]
    for future in admin.delete_records([TopicPartition(topic, 0, end)]).values():
        future.result(WAIT_S)

    def told() -> dict[str, str]:
        words = [
            "sink",
            "check",
            THIRD,
            "--kind",
            "redis",
            "--url",
            stack.endpoints.redis_url,
            "--source",
            NAME,
        ]
        words += ["--key-prefix", "third:"]
        shown = CliRunner().invoke(app, [*words, "--json", "--home", str(stack.home.root)])
        return {found["code"]: found["hint"] for found in json.loads(shown.stdout)["findings"]}

    until(lambda: "SINK_HISTORY_GONE" in told())
    done(mirror, told()["SINK_HISTORY_GONE"])
    assert "SINK_HISTORY_GONE" not in told()
    mirror.settle()


def test_a_password_on_the_command_line(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    told = refused(mirror.stack.home.root, "source", "rotate", NAME, "secret")
    assert told["code"] == "SECRET_ON_COMMAND_LINE"
    monkeypatch.setenv("NAME", str(psycopg.conninfo.conninfo_to_dict(mirror.database.dsn)["password"]))
    done(mirror, told["hint"].partition(",")[0])
    mirror.database.run("UPDATE notes SET v = 'after' WHERE id = 2")
    mirror.settle()


def test_a_connector_that_connect_refuses(mirror: Mirror, stack: RunningStack, tmp_path: Path) -> None:
    """The worker reads no passwords from a folder that is not its own; the check finds the database fit."""
    with fresh_database(stack.endpoints.postgres_dsn, "turned_away") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        with pytest.raises(SourceError) as caught:
            source.add(replace(mirror.context, secrets=tmp_path / "elsewhere"), "turned", database.dsn)
        assert caught.value.code == "CONNECTOR_REFUSED"
        assert "headrace source check URL" in caught.value.hint
        done(mirror, f"headrace source check {database.dsn}")
        source.add(mirror.context, "turned", database.dsn)
        source.remove(mirror.context, "turned")
