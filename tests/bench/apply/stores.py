"""All stores: what is started for each, who writes to it, and which versions take part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version

from elasticsearch import Elasticsearch
from redis import Redis

from headrace.local.endpoints import Endpoints
from tests.bench.apply.delta import delta_sides
from tests.bench.apply.elasticsearch import elasticsearch_sides
from tests.bench.apply.products import BATCH, PHASES, Batches, batches
from tests.bench.apply.redis import redis_sides
from tests.bench.apply.rounds import Side, measure
from tests.bench.meter import Meter, servers
from tests.bench.results import Result
from tests.bench.suite import Benchmark, Setting
from tests.support.stack import running_stack

__all__ = ["BENCHMARKS", "STORES", "Store", "server_versions"]

_ROWS = 20_000

_work = cache(batches)


@dataclass(frozen=True, slots=True)
class Store:
    """A store to apply to.

    Args:
        servers: What of the local stack it needs.
        sides: Opens the ways of writing to it.
        libraries: Python distributions that write to it.
        minutes: About how long five rounds take.
    """

    servers: frozenset[str]
    sides: Callable[[Endpoints | None, Batches], AbstractContextManager[list[Side]]]
    libraries: tuple[str, ...]
    minutes: float


def _search(at: Endpoints | None, work: Batches) -> AbstractContextManager[list[Side]]:
    assert at is not None
    return elasticsearch_sides(at.elasticsearch_url, work)


def _cache(style: str, at: Endpoints | None, work: Batches) -> AbstractContextManager[list[Side]]:
    assert at is not None
    return redis_sides(at.redis_url, style, work)


def _lake(_: Endpoints | None, work: Batches) -> AbstractContextManager[list[Side]]:
    return delta_sides(work)


_REDIS = frozenset({"redis"})

STORES: Mapping[str, Store] = {
    "elasticsearch": Store(frozenset({"elasticsearch"}), _search, ("elasticsearch", "orjson"), 1.3),
    "redis.json": Store(_REDIS, partial(_cache, "json"), ("redis", "hiredis"), 0.4),
    "redis.hash": Store(_REDIS, partial(_cache, "hash"), ("redis", "hiredis"), 0.8),
    "delta": Store(frozenset(), _lake, ("deltalake", "pyarrow"), 0.4),
}


def _apply(name: str, setting: Setting) -> Iterator[Result]:
    store = STORES[name]
    work = _work(_ROWS)
    with ExitStack() as closing:
        at: Endpoints | None = None
        processes: dict[str, int] = {}
        if store.servers:
            running = closing.enter_context(running_stack(set(store.servers)))
            at, processes = running.endpoints, servers(running.home.run)
        versions = server_versions(at, store.servers) | {
            f"{library} (Python)": version(library) for library in store.libraries
        }
        sides = closing.enter_context(store.sides(at, work))
        for result in measure(name, sides, work, setting.runs, Meter(processes)):
            settings = {**result.settings, "rows a batch": BATCH}
            yield replace(result, versions=versions, settings=settings)


def server_versions(at: Endpoints | None, names: frozenset[str]) -> dict[str, str]:
    """Return the versions of those servers that run."""
    found = {}
    if at is not None and "elasticsearch" in names:
        with Elasticsearch(at.elasticsearch_url) as search:
            # The root of the API, where the version stands, is not part of every distribution.
            nodes = search.nodes.info(filter_path="nodes.*.version")["nodes"].values()
            found["Elasticsearch"] = str(min(node["version"] for node in nodes))
    if at is not None and "redis" in names:
        with Redis.from_url(at.redis_url) as redis:
            found["Redis"] = str(redis.info("server")["redis_version"])
    return found


BENCHMARKS = tuple(
    Benchmark(
        f"apply.{name}",
        "apply",
        store.minutes,
        True,
        partial(_apply, name),
        promises=tuple(f"apply.{name}.{phase}" for phase in PHASES),
    )
    for name, store in STORES.items()
)
