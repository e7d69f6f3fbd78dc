"""The demo's pipeline: the shop as a source, three sinks, and a reader for what each says it keeps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from headrace.control import sink as sinks
from headrace.control import source as sources
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.demo.ownership import SINKS, SOURCE, Belongings
from headrace.demo.stores.base import Facts, Store
from headrace.demo.stores.cache import CacheStore
from headrace.demo.stores.lake import LakeStore
from headrace.demo.stores.search import SearchStore
from headrace.local.endpoints import Endpoints

__all__ = ["open_stores", "register"]

Say = Callable[[str], None]


def register(context: Context, belongings: Belongings, url: str, endpoints: Endpoints, say: Say) -> None:
    """Register the source, then all sinks at once; returns while the initial snapshot is under way."""

    def add(name: str, kind: str) -> None:
        def told(text: str) -> None:
            say(f"{name:<13} {text}")

        settings = _settings(kind, endpoints)
        sinks.add(context, name, kind, settings=settings, source=SOURCE, wait=False, say=told)

    try:
        sources.add(context, SOURCE, url, wait=False, say=lambda text: say(f"{SOURCE:<13} {text}"))
        with ThreadPoolExecutor(len(SINKS)) as pool:
            for job in [pool.submit(add, name, kind) for name, kind in SINKS.items()]:
                job.result()
    finally:
        belongings.note()


def open_stores(context: Context, endpoints: Endpoints) -> list[Store]:
    """Return a reader for each sink; all it knows are the sink's published facts and the server's address."""
    registry = Registry(context.registry)
    tables = {table.topic: table.schema.table.name for table in registry.source(SOURCE).tables}
    facts: dict[str, Facts] = {
        name: {tables[topic]: found for topic, found in registry.sink(name).tables.items()} for name in SINKS
    }
    return [
        SearchStore("search", endpoints.elasticsearch_url, facts["search"]),
        CacheStore("cache", endpoints.redis_url, facts["cache"]),
        LakeStore("lake", facts["lake"]),
    ]


def _settings(kind: str, endpoints: Endpoints) -> dict[str, Any]:
    if kind == "elasticsearch":
        return {"url": endpoints.elasticsearch_url}
    if kind == "redis":
        return {"url": endpoints.redis_url}
    return {"path": str(Path(endpoints.lake_path) / SOURCE)}
