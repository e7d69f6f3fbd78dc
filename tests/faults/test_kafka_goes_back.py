"""Kafka loses what a sink needs, or what it has applied: told by name, and for that table only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.config.kafka import KafkaAddress
from headrace.control import sink
from headrace.control.kafka import Kafka
from headrace.control.lag import State, TableLag, measure
from headrace.control.progress import read_progress
from tests.support.mirror import KINDS, Mirror, mirrored
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import until
from tests.support.watched import watched

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

TABLES = ("cut", "anew", "gone", "whole")


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        "kafkaback",
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in TABLES),
        *(f"INSERT INTO {name} SELECT i, 'v' || i FROM generate_series(1, 20) i" for name in TABLES),
    ) as opened:
        opened.settle()
        yield opened


def words(mirror: Mirror, table: str) -> list[TableLag]:
    return [found for found in measure(mirror.context).tables if found.table == f"public.{table}"]


def state_of(mirror: Mirror, short: str) -> str:
    progress = read_progress(mirror.context.progress, f"kafkaback{short}")
    return progress.state if progress else ""


def equal(mirror: Mirror, table: str) -> bool:
    wanted = {str(key): value for key, value in mirror.database.run(f"SELECT id, v FROM {table}")}
    found = mirror.stored(table).values()
    return all({key: row["v"] for key, row in rows.items()} == wanted for rows in found)


def test_records_that_kafka_has_lost_before_they_were_read_concern_their_table_only(mirror: Mirror) -> None:
    """A6, D9: retention took what a paused sink had not read."""
    topic, other = "kafkaback.public.cut", "kafkaback.public.whole"
    kafka = Kafka(mirror.context.kafka_bootstrap)
    before = kafka.ends([topic, other])
    for short in KINDS:
        sink.pause(mirror.context, f"kafkaback{short}")
    until(lambda: all(state_of(mirror, short) == "paused" for short in KINDS))
    mirror.database.run("UPDATE cut SET v = 'lost' WHERE id < 5", "UPDATE whole SET v = 'kept' WHERE id < 5")

    def written() -> bool:
        ends = kafka.ends([topic, other])
        return all(ends[place][1] > before[place][1] for place in ends)

    until(written)
    admin = AdminClient({**KafkaAddress.parse(mirror.context.kafka_bootstrap).librdkafka()})
    end = kafka.ends([topic])[topic, 0][1]
    for future in admin.delete_records([TopicPartition(topic, 0, end)]).values():
        future.result()
    for short in KINDS:
        sink.resume(mirror.context, f"kafkaback{short}")
    until(lambda: equal(mirror, "whole"))
    until(lambda: {found.state for found in words(mirror, "cut")} == {State.RESYNC_REQUIRED})
    assert all("headrace resnapshot kafkaback public.cut" in found.remedy for found in words(mirror, "cut"))
    until(lambda: {found.state for found in words(mirror, "whole")} == {State.STREAMING})
    mirror.database.run("UPDATE cut SET v = 'later' WHERE id = 10")
    until(lambda: all(rows["10"]["v"] == "later" for rows in mirror.stored("cut").values()))
    assert not mirror.in_sync


def test_a_topic_that_was_made_anew_is_not_applied_upon_what_it_was(mirror: Mirror) -> None:
    """A6, B3: its offsets begin again, so its changes would count as older than what the stores hold."""
    kafka = Kafka(mirror.context.kafka_bootstrap)
    topic = "kafkaback.public.anew"
    kafka.delete([topic])
    until(lambda: topic not in kafka.names())
    admin = AdminClient({**KafkaAddress.parse(mirror.context.kafka_bootstrap).librdkafka()})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result()
    mirror.database.run(
        "UPDATE anew SET v = 'second life' WHERE id = 1", "UPDATE whole SET v = 'more' WHERE id = 6"
    )
    until(lambda: {found.state for found in words(mirror, "anew")} == {State.RESYNC_REQUIRED})
    until(lambda: all(rows["6"]["v"] == "more" for rows in mirror.stored("whole").values()))
    assert not mirror.in_sync
    assert {rows["1"]["v"] for rows in mirror.stored("anew").values()} == {"v1"}


@pytest.mark.deep
def test_a_topic_that_is_gone_stops_its_table_only(mirror: Mirror) -> None:
    until(lambda: {found.state for found in words(mirror, "whole")} == {State.STREAMING})

    def arrives(name: str) -> None:
        mirror.database.run(f"UPDATE whole SET v = '{name}' WHERE id = 7")
        until(lambda: all(rows["7"]["v"] == name for rows in mirror.stored("whole").values()))

    def codes() -> set[str]:
        told = (read_progress(mirror.context.progress, f"kafkaback{short}") for short in KINDS)
        troubles = (one.tables["public.gone"].trouble for one in told if one is not None)
        return {str((trouble or {}).get("code", "")) for trouble in troubles}

    with watched(mirror.context, lambda: True) as seen:
        Kafka(mirror.context.kafka_bootstrap).delete(["kafkaback.public.gone"])
        arrives("beside it")
        until(lambda: codes() == {"TOPIC_MISSING"})
        arrives("without it")
    for short in KINDS:
        said = seen.words(f"kafkaback{short}", "public.whole")
        others = {word.state: word.reason for word in said}
        assert others.keys() <= {State.STREAMING, State.CATCHING_UP}, (short, others)
    until(lambda: {found.state for found in words(mirror, "gone")} == {State.RESYNC_REQUIRED})
    (remedy,) = {found.remedy for found in words(mirror, "gone")}
    assert remedy == "headrace recover kafkaback"
    carry_out(remedy, mirror.stack.home.root, mirror.database.run)
    mirror.settle()
    assert all(equal(mirror, table) for table in TABLES)
