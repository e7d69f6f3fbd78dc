"""What a truncate keeps and reads of a topic's other partitions: as little as it needs."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

from spark_jobs.emptying import Emptying, Emptyings, cut
from spark_jobs.peek import Mark
from spark_jobs.report import Report
from tests.support.small_table import sink
from tests.unit.test_table_trouble import spec

TRUNCATE = Emptying("t", lsn=50, at_ms=1_000, open=(1,))


@dataclass
class Log:
    """Another partition, and how often each of its records was looked at."""

    records: list[Mark]
    looks: list[int] = field(default_factory=list)
    most: int = 0

    def marks(self, topic: str, partition: int, begin: int, end: int) -> list[Mark]:
        self.looks += range(begin, end)
        self.most = max(self.most, end - begin)
        return self.records[begin:end]

    def first_since(self, topic: str, partition: int, at_ms: int) -> int | None:
        return next((mark.offset for mark in self.records if mark.at_ms >= at_ms), None)

    def beginning(self, topic: str, partition: int) -> int:
        return 0


def log(*told: tuple[int | None, int]) -> Log:
    return Log([Mark(offset, lsn, at_ms) for offset, (lsn, at_ms) in enumerate(told)])


def plainly(records: list[Mark]) -> int:
    """Return what is to be found, by looking at everything from the beginning."""
    below, older = 0, True
    for mark in records:
        if mark.lsn is not None:
            older = mark.lsn < TRUNCATE.lsn
        older = older and (mark.lsn is not None or mark.at_ms <= TRUNCATE.at_ms)
        below = mark.offset + 1 if older else below
    return below


def test_rows_that_a_run_has_read_are_looked_at_once_and_a_bounded_number_at_a_time() -> None:
    read = log((7, 1), *[(None, 1_001)] * 300_000)
    assert cut(read, TRUNCATE, 1, 300_001) == (1, False)
    assert sorted(read.looks) == list(range(300_001))
    assert read.most <= 50_000


def test_what_is_found_backwards_is_what_is_found_from_the_beginning() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for _ in range(40):
        told: list[tuple[int | None, int]] = []
        for _ in range(dice.randrange(1, 6)):
            lsn = dice.choice([None, None, dice.randrange(100)])
            told += [(lsn, dice.choice([1_000, 1_001]))] * dice.choice([1, 1_999, 2_000, 2_001, 6_000])
        found, _ = cut(log(*told), TRUNCATE, 1, len(told))
        assert found == plainly(log(*told).records)


def test_a_truncate_takes_over_what_earlier_ones_had_left_to_do(tmp_path: Path) -> None:
    told = spec(tmp_path)
    several = told.model_copy(update={"tables": (told.tables[0].model_copy(update={"partitions": 2}),)})
    topic = log(*[(lsn, 1_000) for lsn in range(10)])
    for lsn in range(5):
        report = Report(truncates=[{"topic": "t", "partition": 0, "offset": lsn, "lsn": lsn}])
        Emptyings(several, topic).empty(sink(), report, {("t", 0): lsn - 1}, {("t", 0): lsn}, _nowhere)
    (left,) = json.loads((several.checkpoint / "emptying.json").read_bytes())
    assert left["lsn"] == 4


def _nowhere(topic: str, partition: int) -> None:
    raise AssertionError(f"{topic} {partition} is told to be lost")
