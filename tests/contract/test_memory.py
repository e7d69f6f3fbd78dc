"""The reference sink keeps the contract it defines."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import ClassVar

import pytest

from headrace.model.schema import LogicalType
from sinks.contract import SinkContract, table
from sinks.memory import MemorySink


class TestMemory(SinkContract):
    examples: ClassVar[int] = 25
    typed: ClassVar[bool] = False
    bad_table: ClassVar = table("prices", {"id": LogicalType.INT64, "price": LogicalType.NUMERIC}, ["id"])
    bad_row: ClassVar = {"price": "cheap"}

    @pytest.fixture
    def sink(self) -> Iterator[MemorySink]:
        sink = MemorySink("memory", MemorySink.Config(store=uuid.uuid4().hex))
        yield sink
        sink.close()
