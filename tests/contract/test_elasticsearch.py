"""The Elasticsearch sink keeps the contract on a real server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import ClassVar

import pytest

from headrace.model.schema import LogicalType
from sinks.contract import SinkContract, table
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client
from tests.support.stack import RunningStack

pytestmark = pytest.mark.stack


def clear(client: Client, prefix: str) -> None:
    """Delete every index whose name begins with ``prefix``."""
    found = client.request("GET", f"/{prefix}*/_alias?expand_wildcards=all").json()
    for index in found:
        client.request("DELETE", "/" + index.replace("%", "%25"), see=(404,))


@pytest.fixture
def prefix(stack: RunningStack) -> Iterator[str]:
    prefix = f"t{uuid.uuid4().hex[:10]}-"
    yield prefix
    client = Client(ElasticsearchSink.Config(url=stack.endpoints.elasticsearch_url))
    clear(client, prefix)
    client.close()


class TestElasticsearch(SinkContract):
    bad_table: ClassVar = table("counts", {"id": LogicalType.INT64, "count": LogicalType.INT64}, ["id"])
    bad_row: ClassVar = {"count": "many"}

    @pytest.fixture
    def sink(self, stack: RunningStack, prefix: str) -> Iterator[ElasticsearchSink]:
        config = ElasticsearchSink.Config(url=stack.endpoints.elasticsearch_url, prefix=prefix)
        sink = ElasticsearchSink("search", config)
        yield sink
        sink.close()
