"""The chain simulated over the memory sink: what a database does, what Kafka repeats, where a driver dies.

The code under test is the real one, from a record's bytes to the sink's outcomes and what a batch keeps for
the next: decode, collapse, apply, carry, holds. The source, Kafka and the checkpoint are models, and no time
passes. ``tests/property/simulation`` has the models and says what has to hold.
"""

from __future__ import annotations

import uuid

import pytest

from sinks.base import Sink
from sinks.memory import MemorySink
from tests.property.simulation.kafka import TOPIC
from tests.property.simulation.machine import Chain
from tests.property.simulation.programs import DEEP, fixed, fresh_seed, run_fresh
from tests.property.simulation.source import SCHEMA


class InMemory:
    """One store, made anew for each program."""

    def __init__(self) -> None:
        config = MemorySink.Config(store=uuid.uuid4().hex)
        self._both = MemorySink("store", config), MemorySink("store", config)

    def sinks(self, epoch: int) -> tuple[Sink, Sink]:
        one, other = self._both
        one.drop(SCHEMA)
        one.forget([TOPIC])
        one.prepare(SCHEMA)
        return one, other


class ChainInMemory(Chain):
    place = InMemory()


if not DEEP:
    # `make test-deep` and `make deep` are where new ones are looked for.
    ChainInMemory.TestCase.settings = fixed(programs=45, steps=50)

TestChain = pytest.mark.timeout(0)(ChainInMemory.TestCase)


@pytest.mark.deep
@pytest.mark.fresh
@pytest.mark.timeout(0)
def test_other_programs_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    run_fresh(ChainInMemory, programs=300, steps=50, number=fresh_seed(capsys))
