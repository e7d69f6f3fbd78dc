"""Each remedy is carried out as it is printed, from the state that prints it; then all is well again."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from redis import Redis
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.kafka import KafkaAddress
from headrace.control import lag, sink
from headrace.control.kafka import Kafka
from headrace.control.lag import State
from headrace.control.registry import Registry
from tests.support.mirror import KINDS, Mirror, mirrored
from tests.support.patience import WAIT_S
from tests.support.remedy import refused
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("honest"),
]

TABLES = ("logless", "unread", "outside", "halved", "torn", "fileless", "altered")
Break = Callable[[Mirror], None]


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        "remedy",
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v text, a text[])" for name in TABLES),
        *(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in TABLES),
        *(f"INSERT INTO {name} SELECT i, 'v' || i FROM generate_series(1, 30) i" for name in TABLES),
    ) as made:
        made.settle()
        yield made


def assert_equal(mirror: Mirror) -> None:
    mirror.settle()
    for table in TABLES:
        wanted = {str(key): value for key, value in mirror.database.run(f"SELECT id, v FROM {table}")}
        for name, rows in mirror.stored(table).items():
            assert {key: row["v"] for key, row in rows.items()} == wanted, (name, table)


def headrace(mirror: Mirror, words: str) -> None:
    done = CliRunner().invoke(app, [*shlex.split(words)[1:], "--home", str(mirror.stack.home.root)])
    assert done.exit_code == 0, f"{words}: {done.output}"


def carried_out(mirror: Mirror, remedy: str) -> None:
    """Do what is told, as a person would paste it: SQL into the database, the rest into a shell."""
    assert remedy
    for step in re.split(r"(?:;|&&)\s*(?:-- then: )?", remedy.partition("  # ")[0]):
        if "headrace " in step:
            headrace(mirror, re.sub(r"^.*?(?=headrace )", "", step).strip("`. "))
        elif step.strip():
            mirror.database.run(step)


def told(mirror: Mirror, table: str, *states: State) -> str:
    """Return the remedy that lag names for a table once it is in one of these states."""
    found: set[str] = set()

    def is_told() -> bool:
        seen = [t for t in lag.measure(mirror.context).tables if t.table == f"public.{table}"]
        found.clear()
        found.update(t.remedy for t in seen if t.state in states and t.remedy)
        return bool(found)

    until(is_told)
    assert not any(word in remedy for remedy in found for word in ("SOURCE", "SINK", "TABLE public"))
    return min(found, key=len)


def log_is_damaged(mirror: Mirror) -> None:
    lake = Path(Registry(mirror.context.registry).sink("remedylake").settings["path"])
    shutil.rmtree(lake / "public" / "logless")
    mirror.database.run("UPDATE logless SET v = 'written' WHERE id = 1")


def in_lake(mirror: Mirror, table: str) -> Path:
    return Path(Registry(mirror.context.registry).sink("remedylake").settings["path"]) / "public" / table


def commit_is_damaged(mirror: Mirror) -> None:
    newest = max((in_lake(mirror, "torn") / "_delta_log").glob("*.json"))
    newest.write_text("{no commit")
    mirror.database.run("UPDATE torn SET v = 'written' WHERE id = 1")


def data_file_is_gone(mirror: Mirror) -> None:
    mirror.pause("lake")  # what it remembers of the rows goes with its query
    for file in in_lake(mirror, "fileless").glob("*.parquet"):
        file.unlink()
    mirror.resume("lake")
    mirror.database.run("UPDATE fileless SET v = 'written' WHERE id < 4")


def others_write(mirror: Mirror) -> None:
    table = DeltaTable(str(in_lake(mirror, "altered")))
    table.delete("id = 3")
    mirror.database.run("UPDATE altered SET v = 'written' WHERE id = 1")


def topic_is_trimmed(mirror: Mirror) -> None:
    topic = "remedy.public.unread"
    kafka = Kafka(mirror.context.kafka_bootstrap)
    before = kafka.ends([topic])[topic, 0][1]
    mirror.pause(*KINDS)
    mirror.database.run("UPDATE unread SET v = 'lost' WHERE id < 9", "DELETE FROM unread WHERE id = 9")
    until(lambda: kafka.ends([topic])[topic, 0][1] > before)
    admin = AdminClient({**KafkaAddress.parse(mirror.context.kafka_bootstrap).librdkafka()})
    end = kafka.ends([topic])[topic, 0][1]
    for future in admin.delete_records([TopicPartition(topic, 0, end)]).values():
        future.result(WAIT_S)
    mirror.resume(*KINDS)


def table_is_outside(mirror: Mirror) -> None:
    mirror.database.run(
        "ALTER PUBLICATION headrace_remedy DROP TABLE outside",
        "UPDATE outside SET v = 'unseen' WHERE id = 4",
        "DELETE FROM outside WHERE id = 5",
    )


@pytest.mark.parametrize(
    ("table", "breaks"),
    [
        ("logless", log_is_damaged),
        ("unread", topic_is_trimmed),
        ("outside", table_is_outside),
        ("torn", commit_is_damaged),
        ("fileless", data_file_is_gone),
        ("altered", others_write),
    ],
)
def test_the_remedy_of_a_table(mirror: Mirror, table: str, breaks: Break) -> None:
    mirror.settle()
    breaks(mirror)
    if table == "logless":
        # What is gone is filled again by itself; a remedy is told only while it is not.
        assert_equal(mirror)
        return
    carried_out(mirror, told(mirror, table, State.RESYNC_REQUIRED, State.FAILED, State.DEGRADED))
    assert_equal(mirror)


def test_the_remedy_of_a_sink_whose_password_is_another(mirror: Mirror) -> None:
    mirror.settle()
    operators: Any = Redis.from_url(mirror.stack.redis_admin_url)
    operators.execute_command("ACL", "SETUSER", "remedy", "on", ">first", "~*", "&*", "+@all")
    place = mirror.stack.endpoints.redis_url.rpartition("@")[2]
    url = f"redis://remedy:first@{place}"
    settings = {"url": url, "key_prefix": "other:"}
    sink.add(mirror.context, "remedyother", "redis", settings=settings, source="remedy")
    try:
        operators.execute_command("ACL", "SETUSER", "remedy", "resetpass", ">second")
        operators.execute_command("CLIENT", "KILL", "USER", "remedy")
        mirror.database.run("UPDATE halved SET v = 'later' WHERE id = 1")

        def remedy() -> str:
            (seen,) = [found for found in lag.measure(mirror.context).sinks if found.sink == "remedyother"]
            return seen.remedy or ""

        until(lambda: "sink rotate remedyother" in remedy())
        # The names of the settings are told, their values only the operator knows.
        words = remedy().replace("username=…", "username=remedy")
        headrace(mirror, words.replace("password=env:VARIABLE", "password=second"))
        assert_equal(mirror)
    finally:
        sink.remove(mirror.context, "remedyother", purge=True)
        operators.execute_command("ACL", "DELUSER", "remedy")


@pytest.mark.parametrize("gone", [False, True])
def test_the_remedy_of_a_pipeline_file_that_is_damaged(mirror: Mirror, gone: bool) -> None:
    mirror.settle()
    file = mirror.context.pipelines / "remedycache.json"
    if gone:
        file.unlink()
    else:
        file.write_text("{")

    def remedy() -> str:
        (seen,) = [found for found in lag.measure(mirror.context).sinks if found.sink == "remedycache"]
        return seen.remedy or ""

    until(lambda: remedy() == "headrace sink resume remedycache")
    carried_out(mirror, remedy())
    mirror.database.run(f"UPDATE halved SET v = 'resumed {gone}' WHERE id = 2")
    assert_equal(mirror)


def test_the_remedy_of_a_key_that_changed(mirror: Mirror) -> None:
    """Columns of other tables are followed meanwhile, and what is told leaves those alone."""
    mirror.settle()
    mirror.pause("cache")  # which is the lesser trouble, and does not hide the other
    mirror.database.run(
        "ALTER TABLE halved DROP CONSTRAINT halved_pkey, ADD COLUMN b int NOT NULL DEFAULT 0",
        "ALTER TABLE halved ADD PRIMARY KEY (id, b)",
        "INSERT INTO halved (id, v, b) VALUES (1, 'of the new key', 1)",
    )
    remedy = told(mirror, "halved", State.FAILED)

    def words(table: str) -> dict[str, State]:
        return {t.sink: t.state for t in lag.measure(mirror.context).tables if t.table == f"public.{table}"}

    until(lambda: set(words("halved").values()) == {State.FAILED}, why=lambda: words("halved"))
    mirror.resume("cache")
    mirror.database.run("ALTER TABLE fileless ADD COLUMN w int DEFAULT 7")
    until(
        lambda: {row.get("w") for rows in mirror.stored("fileless").values() for row in rows.values()} == {7}
    )
    until(lambda: set(words("fileless").values()) == {State.STREAMING}, why=lambda: words("fileless"))
    assert set(words("halved").values()) == {State.FAILED}
    error = refused(mirror.stack.home.root, "source", "refresh", mirror.name)
    assert (error["code"], error["hint"]) == ("SOURCE_KEY_CHANGED", remedy)
    carried_out(mirror, remedy)
    assert mirror.schema("halved").key == ("id", "b")
    mirror.settle()
    assert all(len(rows) == 31 for rows in mirror.stored("halved").values())
    assert all(len(rows) == 30 for rows in mirror.stored("fileless").values())
