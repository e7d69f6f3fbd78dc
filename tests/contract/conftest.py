"""What several files of this directory ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.search import Server, clear
from tests.support.stack import RunningStack


@pytest.fixture
def server(stack: RunningStack) -> Iterator[Server]:
    """An Elasticsearch with a prefix of the test's own, whose indexes are deleted after it."""
    server = Server(stack.endpoints.elasticsearch_url)
    yield server
    clear(server.client, server.prefix)
    server.client.close()
