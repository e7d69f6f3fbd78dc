"""A look into a topic tells what is there, whatever was looked at before."""

from __future__ import annotations

import random

import pytest

from spark_jobs.peek import KafkaPeek
from tests.integration.test_straight_records import Log
from tests.support.stack import RunningStack

pytestmark = pytest.mark.stack


def test_looks_one_after_the_other_do_not_mix(stack: RunningStack) -> None:
    bootstrap = stack.endpoints.kafka_bootstrap
    logs = [Log(bootstrap), Log(bootstrap)]
    there: list[list[tuple[int, int]]] = [[], []]
    for number, log in enumerate(logs):
        offset = 0
        for count in (1, 700, 3, 40):
            lsns = [1000 * number + offset + n for n in range(count)]
            log.write(*(b'{"source":{"lsn":%d}}' % lsn for lsn in lsns))
            there[number] += [(offset + n, lsn) for n, lsn in enumerate(lsns)]
            offset += count + 1  # the commit marker
    peek, rng = KafkaPeek(bootstrap, "test"), random.Random(7)
    for _ in range(60):
        number = rng.randrange(2)
        begin, end = sorted(rng.sample(range(749), 2))
        found = peek.marks(logs[number].topic, 0, begin, end)
        expected = [(offset, lsn) for offset, lsn in there[number] if begin <= offset < end]
        assert [(mark.offset, mark.lsn) for mark in found] == expected
    (first, *_), (last, *_) = peek.marks(logs[0].topic, 0, 0, 1), peek.marks(logs[0].topic, 0, 746, 747)
    assert peek.first_since(logs[0].topic, 0, first.at_ms) == 0
    assert peek.first_since(logs[0].topic, 0, last.at_ms + 60_000) is None
    assert peek.beginning(logs[0].topic, 0) == 0
