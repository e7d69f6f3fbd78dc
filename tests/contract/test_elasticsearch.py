"""The Elasticsearch sink keeps the contract on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from headrace.model.schema import LogicalType
from sinks.contract import SinkContract, table
from sinks.elasticsearch import ElasticsearchSink
from tests.support.search import Server

pytestmark = pytest.mark.stack


class TestElasticsearch(SinkContract):
    bad_table: ClassVar = table("counts", {"id": LogicalType.INT64, "count": LogicalType.INT64}, ["id"])
    bad_row: ClassVar = {"count": "many"}

    @pytest.fixture
    def sink(self, server: Server) -> Iterator[ElasticsearchSink]:
        sink = server.sink()
        yield sink
        sink.close()
