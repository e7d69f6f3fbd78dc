"""All stores, one after the other, and their figures for people to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any

from elasticsearch import Elasticsearch
from redis import Redis
from rich.console import Console
from rich.table import Table

from headrace.local.endpoints import Endpoints
from tests.bench.apply.delta import delta_sides
from tests.bench.apply.elasticsearch import elasticsearch_sides
from tests.bench.apply.products import BATCH, PHASES, Batches, batches
from tests.bench.apply.redis import redis_sides
from tests.bench.apply.rounds import Side, measure
from tests.support.stack import running_stack

__all__ = ["measure_apply", "print_apply"]

_ROWS = 20_000
_SERVERS = {"elasticsearch", "redis"}


def _sides(at: Endpoints, work: Batches) -> Iterator[tuple[str, AbstractContextManager[list[Side]]]]:
    yield "elasticsearch", elasticsearch_sides(at.elasticsearch_url, work)
    yield "redis json", redis_sides(at.redis_url, "json", work)
    yield "redis hash", redis_sides(at.redis_url, "hash", work)
    yield "delta", delta_sides(work)


def measure_apply(rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return each store's figures, measured on servers of their own."""
    work = batches(_ROWS)
    with running_stack(_SERVERS) as running:
        figures: dict[str, Any] = {"rows": _ROWS, "batch": BATCH, "versions": _versions(running.endpoints)}
        for store, opening in _sides(running.endpoints, work):
            say(f"apply: {store}")
            with opening as sides:
                figures[store] = measure(sides, work, rounds)
    return figures


def _versions(at: Endpoints) -> dict[str, str]:
    with Elasticsearch(at.elasticsearch_url) as search, Redis.from_url(at.redis_url) as cache:
        # The root of the API, where the version stands, is not part of every distribution.
        nodes = search.nodes.info(filter_path="nodes.*.version")["nodes"].values()
        servers = {
            "elasticsearch": min(node["version"] for node in nodes),
            "redis": cache.info("server")["redis_version"],
        }
    libraries = {
        f"{name} (Python)": version(name) for name in ("elasticsearch", "redis", "deltalake", "pyarrow")
    }
    return servers | libraries


def _span(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"


def print_apply(console: Console, figures: dict[str, Any]) -> None:
    """Print ratios, processor time and where it goes."""
    stores = {name: found for name, found in figures.items() if isinstance(found, dict) and "phases" in found}
    table = Table(
        "apply",
        "",
        "ours/guarded",
        "ours/plain",
        "guarded/plain",
        "CPU s per 100k: ours, guarded, plain",
        box=None,
    )
    for store, found in stores.items():
        for phase in PHASES:
            seen = found["phases"][phase]
            ratios = (_span(seen[name]) for name in ("ours_to_guarded", "ours_to_plain", "guarded_to_plain"))
            spent = seen["processor_s_per_100k"]
            processor = ", ".join(f"{spent[side]:.2f}" for side in ("ours", "guarded", "plain"))
            table.add_row(store, phase, *ratios, processor)
    console.print(table)
    for store, found in stores.items():
        shares = ", ".join(f"{kind} {share:.0%}" for kind, share in found["profile"].items())
        console.print(f"{store}: processor time of ours: {shares}")
