"""Tables spread over several partitions, through the whole chain, by content, in every store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from headrace.config.kafka import KafkaAddress
from headrace.control import lag, sink
from headrace.control.kafka import Kafka
from headrace.control.lag import State
from headrace.control.progress import read_progress
from headrace.control.runs import start as runs
from tests.support.mirror import KINDS, Mirror, mirrored
from tests.support.patience import WAIT_S
from tests.support.plain import differing
from tests.support.redis_backup import backed_up_keys
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import until
from tests.support.watched import watched

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

PARTITIONS = 4
TOPIC = "spread.public.items"
LARGE = "(SELECT string_agg(md5(i::text || n), '') FROM generate_series(1, 300) n)"
BEFORE = (
    "CREATE TABLE items (id bigint PRIMARY KEY, name text, big text)",
    "ALTER TABLE items ALTER big SET STORAGE EXTERNAL",
    "ALTER TABLE items REPLICA IDENTITY FULL",
    f"INSERT INTO items SELECT i, 'old', {LARGE} FROM generate_series(1, 400) i",
    "CREATE TABLE plain (id text PRIMARY KEY, n int)",
    "ALTER TABLE plain REPLICA IDENTITY FULL",
    "INSERT INTO plain SELECT 'k' || i, i FROM generate_series(1, 100) i",
)


def many(first: int, last: int, name: str) -> str:
    rows = f"SELECT i, '{name}', {LARGE} FROM generate_series({first}, {last}) i"
    return f"INSERT INTO items {rows} ON CONFLICT (id) DO UPDATE SET name = excluded.name"


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(stack, "spread", *BEFORE, partitions=PARTITIONS) as made:
        yield made


def assert_equal(mirror: Mirror) -> None:
    mirror.settle()
    assert mirror.letters == []
    assert differing(mirror) == []


def arrives(mirror: Mirror, key: str) -> None:
    """Write a row of another table and wait until every store has it."""
    mirror.database.run(f"INSERT INTO plain VALUES ('{key}', 7)")
    until(
        lambda: all(
            any(row["id"] == key for row in rows.values()) for rows in mirror.stored("plain").values()
        )
    )


def admin_of(mirror: Mirror) -> AdminClient:
    return AdminClient({**KafkaAddress.parse(mirror.context.kafka_bootstrap).librdkafka(), "log_level": 0})


def test_the_snapshot_is_spread_and_arrives(mirror: Mirror) -> None:
    assert_equal(mirror)
    ends = Kafka(mirror.context.kafka_bootstrap).ends([TOPIC])
    assert len(ends) == PARTITIONS
    assert all(end > 50 for _, end in ends.values())


def test_a_changed_key_takes_its_large_values_to_another_partition(mirror: Mirror) -> None:
    mirror.database.run(
        "UPDATE items SET id = id + 1000 WHERE id <= 150",
        "UPDATE items SET id = -id, name = 'twice' WHERE id > 1000 AND id <= 1050",
        # A swap, by way of a key that is free.
        "BEGIN; UPDATE items SET id = 0 WHERE id = 200; UPDATE items SET id = 200 WHERE id = 201;"
        " UPDATE items SET id = 201 WHERE id = 0; COMMIT",
        "BEGIN; DELETE FROM items WHERE id = 300; UPDATE items SET id = 300 WHERE id = 301; COMMIT",
        "UPDATE plain SET id = 'moved' || n WHERE n % 3 = 0",
    )
    assert_equal(mirror)


def test_a_truncate_empties_every_partition(mirror: Mirror) -> None:
    for turn in range(5):
        mirror.database.run(
            many(2000, 2200, f"before {turn}"),
            f"BEGIN; {many(3000, 3050, 'with it')}; TRUNCATE items; {many(2100, 2150, 'after it')}; COMMIT",
            many(4000, 4000 + 40 * turn, "later"),
        )
    mirror.database.run("TRUNCATE plain, items", "INSERT INTO plain VALUES ('k1', -1)")
    assert_equal(mirror)
    assert {name: len(rows) for name, rows in mirror.stored("items").items()} == dict.fromkeys(
        (f"{mirror.name}{short}" for short in KINDS), 0
    )


def test_a_truncate_that_is_met_long_afterwards_takes_nothing_of_later(mirror: Mirror) -> None:
    for short in KINDS:
        sink.pause(mirror.context, f"{mirror.name}{short}")
    for turn in range(4):
        mirror.database.run(
            many(1, 300, f"before {turn}"), "TRUNCATE items", many(200, 450, "after"), "DELETE FROM items"
            " WHERE id % 7 = 0", "UPDATE items SET id = id + 10000 WHERE id % 5 = 0", "TRUNCATE items",
            many(100, 350, f"last {turn}"), "UPDATE items SET name = name || '!' WHERE id % 3 = 0",
        )  # fmt: skip
        if turn < 3:
            mirror.database.run("TRUNCATE items")
    for short in KINDS:
        sink.resume(mirror.context, f"{mirror.name}{short}")
    assert_equal(mirror)


def test_a_resnapshot_sweeps_every_partition(mirror: Mirror) -> None:
    mirror.database.run(
        "ALTER PUBLICATION headrace_spread DROP TABLE items",
        "DELETE FROM items WHERE id BETWEEN 150 AND 180",
        "UPDATE items SET name = 'unseen' WHERE id BETWEEN 200 AND 210",
        "ALTER PUBLICATION headrace_spread ADD TABLE items",
    )
    swept = runs.resnapshot(mirror.context, mirror.name)
    removed = Counter({done.sink: done.removed for done in swept if done.table == "public.items"})
    assert set(removed.values()) == {31}
    assert_equal(mirror)


def test_a_truncate_that_a_restored_store_has_lost_empties_every_partition_again(mirror: Mirror) -> None:
    """Its record stands in one partition; of the others nothing is to be applied again."""
    mirror.database.run("TRUNCATE items", many(1, 120, "before"))
    mirror.settle()
    restore = backed_up_keys(mirror.stack.endpoints.redis_url, f"{mirror.name}:*")
    mirror.database.run("TRUNCATE items")
    mirror.settle()
    restore()
    with watched(mirror.context, lambda: not mirror.stored("items")[f"{mirror.name}cache"]) as seen:
        until(lambda: not mirror.stored("items")[f"{mirror.name}cache"])
    assert not seen.false_greens
    assert_equal(mirror)


def test_a_truncate_that_kafka_no_longer_places_is_mended_as_it_is_told(mirror: Mirror) -> None:
    """What is older than the truncate was applied, and retention has taken it since."""
    mirror.database.run("TRUNCATE items", many(1, 100, "before"))
    mirror.settle()
    kafka = Kafka(mirror.context.kafka_bootstrap)
    before = kafka.ends([TOPIC])
    mirror.pause(*KINDS)
    mirror.database.run("TRUNCATE items", many(1, 90, "after"))
    until(lambda: all(end > before[place][1] for place, (_, end) in kafka.ends([TOPIC]).items()))
    applied = [TopicPartition(*place, end) for place, (_, end) in before.items()]
    admin = admin_of(mirror)
    for future in admin.delete_records(applied).values():
        future.result(WAIT_S)
    mirror.resume(*KINDS)
    arrives(mirror, "meanwhile")
    remedy = f"headrace resnapshot {mirror.name} public.items"

    def told() -> list[str]:
        return [seen.remedy for seen in lag.measure(mirror.context).tables if seen.table == "public.items"]

    until(lambda: told() == [remedy] * len(KINDS), why=told)
    arrives(mirror, "still")
    carry_out(remedy, mirror.stack.home.root, mirror.database.run)
    assert_equal(mirror)


def test_more_partitions_behind_our_back_stop_that_table_by_name(mirror: Mirror) -> None:
    admin = admin_of(mirror)
    admin.create_partitions([NewPartitions(TOPIC, PARTITIONS + 1)])[TOPIC].result(WAIT_S)
    state = {table.table: table.state for table in lag.measure(mirror.context).tables}
    assert state["public.items"] is State.RESYNC_REQUIRED
    mirror.database.run(many(50_000, 50_100, "moved"))

    def codes(table: str) -> set[str]:
        told = (read_progress(mirror.context.progress, f"{mirror.name}{short}") for short in KINDS)
        return {str((one.tables[table].trouble or {}).get("code", "")) for one in told if one is not None}

    until(lambda: codes("public.items") == {"TOPIC_REPARTITIONED"})
    arrives(mirror, "beside")
    assert codes("public.plain") == {""}
    assert not mirror.in_sync
