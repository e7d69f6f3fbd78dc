"""What several files of this directory ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.search import Server, search_server
from tests.support.stack import RunningStack


@pytest.fixture
def server(stack: RunningStack) -> Iterator[Server]:
    """An Elasticsearch with a prefix of the test's own, whose indexes are deleted after it."""
    with search_server(stack) as opened:
        yield opened
