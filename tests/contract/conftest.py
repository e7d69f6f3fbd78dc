"""What several files of this directory ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sinks.redis import audit
from tests.support.search import Server, search_server
from tests.support.stack import RunningStack


@pytest.fixture
def server(stack: RunningStack) -> Iterator[Server]:
    """An Elasticsearch with a prefix of the test's own, whose indexes are deleted after it."""
    with search_server(stack) as opened:
        yield opened


@pytest.fixture
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one walk follow another at once."""
    monkeypatch.setattr(audit, "_LEAST_REST_S", 0.0)
    monkeypatch.setattr(audit, "_SHARE", 0)
