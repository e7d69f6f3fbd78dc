"""A sink over a store of its own, opened for one benchmark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sinks.base import Sink
from sinks.registry import build
from tests.bench.apply.stores import server_versions
from tests.bench.meter import servers
from tests.support.stack import running_stack

__all__ = ["Opened", "opened"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A sink, and what it writes to.

    Attributes:
        sink: The sink.
        processes: Name → process id, of the store's servers; none where the store is a folder.
        versions: Product → version, of the servers.
    """

    sink: Sink
    processes: Mapping[str, int]
    versions: Mapping[str, str]


@contextmanager
def opened(kind: str) -> Iterator[Opened]:
    """Start the store of a kind of sink, open the sink, and end both afterwards."""
    with ExitStack() as closing:
        processes: Mapping[str, int] = {}
        versions: Mapping[str, str] = {}
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        settings: dict[str, Any] = {"path": folder}
        if kind != "delta":
            running = closing.enter_context(running_stack({kind}))
            at, processes = running.endpoints, servers(running.home.run)
            settings = {"url": at.redis_url if kind == "redis" else at.elasticsearch_url}
            versions = server_versions(at, frozenset({kind}))
        sink = build(kind, "bench", settings)
        closing.callback(sink.close)
        yield Opened(sink, processes, versions)
