"""The demo's pipeline: the shop as a source, three sinks, and a reader for what each says it keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from headrace.control import sink as control_sink
from headrace.control import source as control_source
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.demo.ownership import SINKS, SOURCE
from headrace.demo.stores.base import Store
from headrace.demo.stores.cache import CacheStore
from headrace.demo.stores.lake import LakeStore
from headrace.demo.stores.search import SearchStore
from headrace.local.endpoints import Endpoints

__all__ = ["open_stores", "register"]

Say = Callable[[str], None]
Sinks = Mapping[str, str]


def register(
    context: Context, url: str, endpoints: Endpoints, say: Say, *, source: str = SOURCE, sinks: Sinks = SINKS
) -> None:
    """Register the source, then all sinks at once; returns while the initial snapshot is under way."""

    def add(name: str, kind: str) -> None:
        def told(text: str) -> None:
            say(f"{name:<13} {text}")

        settings = _settings(kind, source, endpoints)
        control_sink.add(context, name, kind, settings=settings, source=source, wait=False, say=told)

    control_source.add(context, source, url, wait=False, say=lambda text: say(f"{source:<13} {text}"))
    with ThreadPoolExecutor(len(sinks)) as pool:
        for job in [pool.submit(add, name, kind) for name, kind in sinks.items()]:
            job.result()


def open_stores(
    context: Context, endpoints: Endpoints, *, source: str = SOURCE, sinks: Sinks = SINKS
) -> list[Store]:
    """Return a reader for each sink; all it knows are the sink's published facts and the server's address."""
    registry = Registry(context.registry)
    tables = {table.topic: table.schema.table.name for table in registry.source(source).tables}
    stores: list[Store] = []
    for name, kind in sinks.items():
        facts = {tables[topic]: found for topic, found in registry.sink(name).tables.items()}
        if kind == "elasticsearch":
            stores.append(SearchStore(name, endpoints.elasticsearch_url, facts))
        elif kind == "redis":
            stores.append(CacheStore(name, endpoints.redis_url, facts))
        else:
            stores.append(LakeStore(name, facts))
    return stores


def _settings(kind: str, source: str, endpoints: Endpoints) -> dict[str, Any]:
    if kind == "elasticsearch":
        return {"url": endpoints.elasticsearch_url}
    if kind == "redis":
        return {"url": endpoints.redis_url}
    return {"path": str(Path(endpoints.lake_path) / source)}
