"""Records are read straight from Kafka: those that Spark would read, and what becomes of them is the same."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.config.kafka import KafkaAddress
from spark_jobs.offsets import Ranges
from spark_jobs.reader import Raw, Reader, Unreadable
from tests.support.patience import WAIT_S
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
    reader = Reader(stack.endpoints.kafka_bootstrap, "test", patience=WAIT_S)
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

    @pytest.mark.deep
    def test_spark_reads_the_same_in_pieces_that_are_bounded(
        self, reader: Reader, log: Log, stack: RunningStack, tmp_path: Path
    ) -> None:
        """It does where the reader cannot; what it reads at a time is bounded in bytes, too (A13)."""
        log.write(b"of before")
        for _ in range(5):
            log.write(*[b"x" * 900_000] * 2, *[b"little"] * 3)
        log.write(b"", b"last")
        place, span = (log.topic, 0), (2, 34)
        told = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.support.spark_reads",
                *(str(tmp_path), stack.endpoints.kafka_bootstrap, log.topic, *map(str, (*span, MOST // 16))),
            ],
            check=True,
            timeout=WAIT_S,
            capture_output=True,
            text=True,
        ).stdout
        pieces = [json.loads(line) for line in told.splitlines() if line.startswith("[")]
        by_spark = [tuple(record) for piece in pieces for record in piece]
        straight = read(reader, {place: span})
        assert straight is not None
        assert by_spark == [(r.offset, (r.key or b"").hex(), (r.value or b"").hex()) for r in straight]
        assert len(by_spark) == 27
        sizes = [sum(len(value) // 2 for _, _, value in piece) for piece in pieces]
        assert len(sizes) > 4
        assert max(sizes) <= MOST // 16

    def test_a_broker_that_does_not_answer_is_not_waited_for(self) -> None:
        assert read(Reader("127.0.0.1:9", "test"), {("t", 0): (0, 1)}) is None
