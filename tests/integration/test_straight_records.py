"""Records are read straight from Kafka: those that Spark would read, and what becomes of them is the same."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from msgspec.structs import replace

from connectors.debezium import Decoder
from headrace.config.kafka import KafkaAddress
from headrace.config.pipeline import TableSpec
from headrace.model.change import Change, Origin, Poison, Record
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from spark_jobs.decode import records
from spark_jobs.offsets import Ranges
from spark_jobs.reader import Raw, Reader, Unreadable
from tests.golden.meaning import column_of, goldens
from tests.golden.record import PLACEHOLDER
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack

MOST = 32 << 20


class Log:
    """A topic of one partition, written to in transactions."""

    def __init__(self, bootstrap: str) -> None:
        self.topic = f"few-{uuid.uuid4().hex}"
        reach = KafkaAddress.parse(bootstrap).librdkafka()
        quiet: dict[str, str | int | float | bool] = {**reach, "log_level": 0}
        self.admin = AdminClient(quiet)
        self.admin.create_topics([NewTopic(self.topic, 1, 1)])[self.topic].result()
        self._producer = Producer({**quiet, "transactional.id": self.topic})
        self._producer.init_transactions()

    def write(self, *values: bytes, commit: bool = True) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self.topic, value, b"key")
        self._producer.flush()
        (self._producer.commit_transaction if commit else self._producer.abort_transaction)()


@pytest.fixture(scope="module")
def reader(stack: RunningStack) -> Iterator[Reader]:
    reader = Reader(stack.endpoints.kafka_bootstrap, "test", patience=30)
    yield reader
    reader.close()


@pytest.fixture
def log(stack: RunningStack) -> Log:
    return Log(stack.endpoints.kafka_bootstrap)


def read(reader: Reader, ranges: Ranges) -> list[Raw] | None:
    """Return all records of some ranges; None when they are not to be had."""
    try:
        return [raw for found in reader.slices(ranges, MOST) for raw in found]
    except Unreadable:
        return None


class TestReading:
    def test_ranges_are_read_whole_and_no_further(self, reader: Reader, log: Log) -> None:
        log.write(b"0", b"1")  # 2 is the commit marker
        log.write(b"3", commit=False)  # 4 is the marker
        log.write(b"5", b"6")  # 7
        log.write(b"8")
        for begin, end, expected in (
            (0, 8, [0, 1, 5, 6]),
            (1, 6, [1, 5]),
            (2, 5, []),
            (6, 8, [6]),
            (7, 8, []),
        ):
            found = read(reader, {(log.topic, 0): (begin, end)})
            assert found is not None
            assert [raw.offset for raw in found] == expected
            assert [raw.value for raw in found] == [str(offset).encode() for offset in expected]
            assert {raw.key for raw in found} <= {b"key"}

    def test_several_partitions_at_once(self, reader: Reader, stack: RunningStack) -> None:
        logs = [Log(stack.endpoints.kafka_bootstrap) for _ in range(3)]
        for number, log in enumerate(logs):
            log.write(*(b"x" * 2_000 for _ in range(number * 200)), b"last")
        found = read(reader, {(log.topic, 0): (0, number * 200 + 2) for number, log in enumerate(logs)})
        assert found is not None
        for number, log in enumerate(logs):
            assert [raw.offset for raw in found if raw.topic == log.topic] == list(range(number * 200 + 1))

    def test_no_read_sees_what_an_earlier_one_had_under_way(self, reader: Reader, log: Log) -> None:
        """The reader fetches ahead of what it is asked for; nothing of that may pass for the next answer."""
        for start in range(0, 4_000, 500):
            log.write(*(str(number).encode() * 50 for number in range(start, start + 499)))
        chance = random.Random(0)
        end = 0
        for _ in range(300):
            if chance.random() < 0.1:  # somebody does not read to the end
                given_up = reader.stream({(log.topic, 0): (0, 3_999)})
                next(given_up)
                given_up.close()
            begin = end if chance.random() < 0.7 else chance.randrange(3_900)
            end = min(begin + chance.choice((1, 2, 10, 100, 1_500)), 3_999)
            found = read(reader, {(log.topic, 0): (begin, end)})
            assert found is not None
            assert [raw.offset for raw in found] == [at for at in range(begin, end) if at % 500 != 499]
            assert all(raw.value == str(raw.offset).encode() * 50 for raw in found)
            end = 0 if end > 3_900 else end

    def test_what_is_gone_is_not_passed_over(self, reader: Reader, log: Log) -> None:
        log.write(b"0", b"1", b"2")
        log.admin.delete_records([TopicPartition(log.topic, 0, 2)])
        until(lambda: read(reader, {(log.topic, 0): (0, 4)}) is None)
        found = read(reader, {(log.topic, 0): (2, 4)})
        assert found is not None
        assert [raw.offset for raw in found] == [2]

    def test_large_records_come_in_slices(self, reader: Reader, log: Log) -> None:
        for _ in range(10):
            log.write(*[b"x" * 900_000] * 4)
        slices = list(reader.slices({(log.topic, 0): (0, 50)}, MOST))
        assert sum(map(len, slices)) == 40
        assert max(map(len, slices)) <= MOST // 900_000 + 1
        offsets = [raw.offset for found in slices for raw in found]
        assert offsets == sorted(offsets)

    def test_a_broker_that_does_not_answer_is_not_waited_for(self) -> None:
        assert read(Reader("127.0.0.1:9", "test"), {("t", 0): (0, 1)}) is None


SOURCE = {"lsn": 7, "txId": 3, "ts_ms": 1_700_000_000_000, "snapshot": "false", "sequence": '["1","2"]'}
KEY = b'{"id":1}'


def envelope(
    op: str | None, *, before: str = "null", after: str = "null", snapshot: str | None = "false"
) -> bytes:
    source = json.dumps({**SOURCE, "snapshot": snapshot})
    return f'{{"before":{before},"after":{after},"source":{source},"op":{json.dumps(op)},"ts_ms":1}}'.encode()


def specimens(image: str) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values of records about a row."""
    return [
        (KEY, envelope("c", after=image)),
        (KEY, envelope("u", before=image, after=image, snapshot=None)),
        (KEY, envelope("r", after=image, snapshot="last")),
        (KEY, envelope("d", before='{"id":1}')),
        (b'{"other":1}', envelope("u", after=image)),
        (b'{"id":1,"other":2}', envelope("u", after=image)),
        (b"{", envelope("u", after=image)),
        (None, envelope("t")),
        (None, envelope("m")),
        (KEY, None),
        (KEY, b"{"),
        (KEY, b""),
        (KEY, b"{}"),
        (KEY, b"[1]"),
        (KEY, envelope(None, after=image)),
        (KEY, envelope("x", after=image)),
        (KEY, envelope("c")),
        (KEY, envelope("d")),
    ]


@pytest.mark.deep
def test_both_ways_to_a_change_agree(stack: RunningStack, tmp_path: Path) -> None:
    tables, sent = [], []
    for number, golden in enumerate(goldens()):
        column = column_of(golden)
        if column is None:
            continue
        schema = TableSchema(
            TableId("public", f"t{number}"), (Column("id", LogicalType.INT32), column), ("id",)
        )
        tables.append(TableSpec(topic=f"t{number}", epoch=1, table=schema.as_dict()))
        for offset, (key, value) in enumerate(specimens(f'{{"id":1,"v":{golden.value}}}')):
            sent.append((f"t{number}", 0, offset, key, value))
    split = split_by_spark(sent, tables, tmp_path)
    decoders = {t.topic: Decoder(t.schema_, t.epoch, PLACEHOLDER) for t in tables}
    by_spark = list(records(split.to_batches(), decoders))
    assert len(by_spark) == len(sent) > 3_000
    kinds = set()
    for (topic, partition, offset, key, value), found in zip(sent, by_spark, strict=True):
        straight = decoders[topic].decode_raw(Origin(topic, partition, offset), key, value)
        if isinstance(straight, Poison) and isinstance(found, Poison) and found.key is None:
            straight = replace(straight, key=None)  # Spark hands the key on only where it is needed
        assert told(straight) == told(found), (topic, key, value)
        kinds.add(type(straight))
    assert len(kinds) == 4


def told(record: Record) -> object:
    """Return what matters of a record; the words of a reason may differ."""
    if isinstance(record, Poison):
        return record.code, record.key
    if isinstance(record, Change):
        return repr(record)  # NaN is like NaN
    return type(record), record.origin.offset


def split_by_spark(sent: Sequence[tuple[object, ...]], tables: list[TableSpec], room: Path) -> pa.Table:
    """Return what Spark makes of records, from a process of its own."""
    topics, partitions, offsets, keys, values = zip(*sent, strict=True)
    table = pa.table(
        {
            "topic": pa.array(topics),
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )
    with pa.ipc.new_file(room / "sent.arrow", table.schema) as writer:
        writer.write_table(table)
    (room / "tables.json").write_text(json.dumps([spec.model_dump(mode="json") for spec in tables]))
    subprocess.run([sys.executable, "-m", "tests.support.spark_split", str(room)], check=True, timeout=120)
    return pa.ipc.open_file(room / "split.arrow").read_all()
