"""A record that is refused, and that Kafka no longer has when it is to be set aside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from headrace.config.kafka import KafkaAddress
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.progress import read_progress
from headrace.control.runner import ensure_engine, stop_engine
from tests.support.database import Database, fresh_database
from tests.support.patience import WAIT_S
from tests.support.remedy import carry_out
from tests.support.search import Server
from tests.support.stack import RunningStack
from tests.support.waiting import letters, settle, until

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("honest"),
]

NAME, SEARCH = "lostletters", "lostsearch"
TOPIC = f"{NAME}.public.notes"
TOO_DEEP = '{"a":' * 150 + "1" + "}" * 150
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
}


@pytest.fixture
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, NAME) as made:
        made.run(
            "CREATE TABLE notes (id int PRIMARY KEY, title text, doc jsonb)",
            "INSERT INTO notes SELECT i, 'n' || i, '{}' FROM generate_series(1, 3) i",
            "CREATE TABLE others (id int PRIMARY KEY, title text)",
        )
        source.add(context, NAME, made.dsn, settings=SourceSettings(heartbeat_ms=300), wait=False)
        settings = {"url": stack.endpoints.elasticsearch_url}
        sink.add(context, SEARCH, "elasticsearch", settings=settings, source=NAME)
        settle(context)
        yield made
        sink.remove(context, SEARCH, purge=True)
        source.remove(context, NAME)


def compacted(context: Context) -> None:
    """Have Kafka keep only the newest record of each row."""
    address = KafkaAddress.parse(context.kafka_bootstrap)
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in COMPACTED.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
    admin = AdminClient({**address.librdkafka(), "log_level": 0})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)


def has(context: Context, offset: int) -> bool:
    """Return whether Kafka still has a record of the table."""
    kafka = Kafka(context.kafka_bootstrap)
    return any(message.offset() == offset for message in kafka.records(TOPIC, 0, offset, offset + 1))


def documents(stack: RunningStack, table: str = "notes") -> dict[int, str]:
    """Return the titles that searches find."""
    server = Server(stack.endpoints.elasticsearch_url)
    try:
        server.ask("POST", f"/{NAME}-public-{table}/_refresh")
        hits = server.ask("GET", f"/{NAME}-public-{table}/_search?size=100")["hits"]["hits"]
    finally:
        server.client.close()
    return {hit["_source"]["id"]: hit["_source"]["title"] for hit in hits}


def test_the_remedy_of_a_letter_that_kafka_has_lost(
    context: Context,
    database: Database,
    stack: RunningStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The record goes between the store's refusal and the reading of it for the letter."""
    sink.pause(context, SEARCH)
    place, log = (TOPIC, 0), tmp_path / "log"
    log.touch()
    offset = Kafka(context.kafka_bootstrap).ends([TOPIC])[place][1]
    database.run(f"INSERT INTO notes VALUES (7, 'refused', '{TOO_DEEP}')")
    until(lambda: Kafka(context.kafka_bootstrap).ends([TOPIC])[place][1] > offset)
    stop_engine(context.run)
    with monkeypatch.context() as armed:
        armed.setenv("HEADRACE_FAILPOINTS", "settle.before_dead_letters/elasticsearch=sleep:90")
        armed.setenv("HEADRACE_FAILPOINTS_LOG", str(log))
        ensure_engine(context)
    sink.resume(context, SEARCH)
    until(lambda: log.read_text().endswith("\n"))
    compacted(context)

    def gone() -> bool:
        # A segment is closed by what is written later.
        database.run("UPDATE notes SET title = 'later', doc = '{}' WHERE id IN (1, 7)")
        return not has(context, offset)

    until(gone)

    def code() -> str:
        progress = read_progress(context.progress, SEARCH)
        trouble = progress.tables["public.notes"].trouble if progress is not None else None
        return str((trouble or {}).get("code", ""))

    until(lambda: code() == "DEAD_LETTER_LOST", why=lambda: lag.measure(context))
    database.run("INSERT INTO others VALUES (1, 'beside')")
    until(lambda: documents(stack, "others") == {1: "beside"})
    words = {told.table: told for told in lag.measure(context).tables}
    assert words["public.others"].state is lag.State.STREAMING
    assert words["public.notes"].remedy == f"headrace resnapshot {NAME} public.notes"
    carry_out(words["public.notes"].remedy, context.registry.parent, database.run)
    settle(context)
    assert documents(stack) == dict(database.run("SELECT id, title FROM notes"))
    assert letters(context) == []
    stop_engine(context.run)  # the next one starts without the failpoint
    ensure_engine(context)


def test_a_row_that_was_behind_is_so_no_more_when_its_table_was_out_and_it_is_gone(
    context: Context, database: Database, stack: RunningStack
) -> None:
    database.run(f"INSERT INTO notes VALUES (9, 'deep', '{TOO_DEEP}')")
    until(lambda: letters(context))
    root = stack.home.root
    carry_out(f"headrace source tables remove {NAME} public.notes", root, database.run)
    database.run("DELETE FROM notes WHERE id = 9")  # nobody is told of it
    carry_out(f"headrace source tables add {NAME} public.notes", root, database.run)
    settle(context)
    assert sorted(documents(stack)) == [1, 2, 3]
