"""An index that is restored from a snapshot over itself is told from what it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headrace.local import elasticsearch
from sinks.contract.story import ORDERS, at, order, state
from tests.support.search import Server, search_server
from tests.support.stack import running_stack

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(300)]


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield an Elasticsearch of its own, that may keep snapshots in a folder."""
    with (
        TemporaryDirectory(prefix="headrace-test-", dir="/var/tmp") as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        folder = Path(name)
        folder.chmod(0o777)
        patch.setattr(elasticsearch, "_SETTINGS", f"{elasticsearch._SETTINGS}path.repo: {folder}\n")
        with running_stack(only={"elasticsearch"}) as running, search_server(running) as opened:
            settings = {"type": "fs", "settings": {"location": str(folder)}}
            opened.ask("PUT", "/_snapshot/kept", settings)
            yield opened


def test_an_index_that_was_restored_over_itself_is_another(server: Server) -> None:
    sink = server.sink()
    sink.prepare(ORDERS)
    sink.apply(ORDERS, [order(1, at(1))])
    first = sink.identities([ORDERS])
    assert first
    (index,) = server.ask("GET", f"/{server.alias()}")
    server.ask("PUT", "/_snapshot/kept/one?wait_for_completion=true", {"indices": index})
    sink.apply(ORDERS, [order(2, at(2))])
    assert sink.identities([ORDERS]) == first
    server.ask("POST", f"/{index}/_close")
    server.ask("POST", "/_snapshot/kept/one/_restore?wait_for_completion=true", {"indices": index})
    assert len(state(sink, ORDERS)) == 1
    second = sink.identities([ORDERS])
    assert second
    assert second != first
    sink.close()
