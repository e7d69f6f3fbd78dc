"""The chain simulated over the memory sink: what a database does, what Kafka repeats, where a driver dies.

The code under test is the real one, from a record's bytes to the sink's outcomes and what a batch keeps for
the next: decode, collapse, apply, carry, holds. The source, Kafka and the checkpoint are models, and no time
passes. ``tests/property/simulation`` has the models and says what has to hold.
"""

from __future__ import annotations

import uuid

import pytest
from hypothesis import settings

from sinks.base import Sink
from sinks.memory import MemorySink
from tests.property.simulation.kafka import TOPIC
from tests.property.simulation.machine import Chain
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


if settings.get_current_profile_name() != "deep":
    # The same programs every time; `make test-deep` is where new ones are looked for.
    ChainInMemory.TestCase.settings = settings(
        ChainInMemory.TestCase.settings, derandomize=True, database=None
    )

TestChain = pytest.mark.timeout(0)(ChainInMemory.TestCase)
