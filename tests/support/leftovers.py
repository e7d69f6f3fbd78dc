"""Whatever an ``add`` or a run may leave: in Postgres, Connect, Kafka, in the stores and in our own files."""

from __future__ import annotations

from pathlib import Path

import httpx
from redis import Redis

from headrace.control.begun import noted
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry
from headrace.control.undone import noted_topics
from tests.support.database import Database
from tests.support.mirror import Mirror, store_settings
from tests.support.search import Server
from tests.support.stack import RunningStack

__all__ = ["left_by_shadows", "left_by_sink", "left_by_source"]


def left_by_source(context: Context, database: Database, name: str) -> dict[str, list[object]]:
    """Return what there is of a source, by the place that has it; a place that has nothing is not named."""
    found: dict[str, list[object]] = {
        "connectors": [one for one in httpx.get(f"{context.connect_url}/connectors").json() if name in one],
        "topics": [topic for topic in Kafka(context.kafka_bootstrap).names() if topic.startswith(f"{name}.")],
        "slots": [*database.run(f"SELECT slot_name FROM pg_replication_slots WHERE slot_name ~ '{name}'")],
        "publications": [*database.run("SELECT pubname FROM pg_publication")],
        "schema": [*database.run("SELECT nspname FROM pg_namespace WHERE nspname ~ '^headrace'")],
        "secrets": [*context.secrets.glob(f"{name}*")],
        "registered": [one.name for one in Registry(context.registry).sources() if one.name == name],
        "noted": [one for one in noted(Registry(context.registry)) if one == name],
    }
    return {place: what for place, what in found.items() if what}


def left_by_sink(
    context: Context, stack: RunningStack, name: str, source: str, lake: Path
) -> dict[str, list[object]]:
    """Return what there is of a sink of a source, whatever its kind, by the place that has it."""
    url = f"{stack.endpoints.elasticsearch_url}/_alias?expand_wildcards=all"
    rooms = (context.checkpoints, context.requests, context.dead_letters, context.progress)
    with Redis.from_url(stack.endpoints.redis_url) as redis:
        found: dict[str, list[object]] = {
            "indexes": [index for index in httpx.get(url).json() if index.startswith(f"{source}-")],
            "keys": [*redis.scan_iter(f"{source}:*")],
            "lake": [path for path in lake.rglob("*") if path.is_file()],
            "registered": [one.name for one in Registry(context.registry).sinks() if one.name == name],
            "noted": [*noted_topics(Registry(context.registry), name)],
            "pipelines": [*context.pipelines.glob(f"{name}.*")],
            "secrets": [*context.sink_secrets.glob(f"{name}.*")],
            "owners": [*context.owners.glob(f"{name}.*")],
            "rooms": [
                path for room in rooms for path in (room / name, room / f"{name}.json") if path.exists()
            ],
        }
    return {place: what for place, what in found.items() if what}


def left_by_shadows(mirror: Mirror) -> dict[str, set[str]]:
    """Return where → what is there of shadows: in the stores, and for the engine."""
    at, context = mirror.stack.endpoints, mirror.context
    server = Server(at.elasticsearch_url)
    indices = server.ask("GET", f"/{mirror.name}-*/_alias?expand_wildcards=all")
    server.client.close()
    aliases = {alias for told in indices.values() for alias in told["aliases"]}
    with Redis.from_url(at.redis_url, decode_responses=True) as redis:
        keys = {key for key in redis.scan_iter(f"{mirror.name}*", count=1000) if ":shadow:" in key}
    lake = Path(store_settings(mirror.stack, mirror.name)["delta"]["path"]) / "_headrace" / "shadow"
    places = (context.pipelines, context.progress, context.checkpoints, context.dead_letters)
    found = {
        "search": {alias for alias in aliases if "-shadow-" in alias},
        "unnamed": {index for index, told in indices.items() if not told["aliases"]},
        "cache": keys,
        "lake": {path.name for path in lake.iterdir()} if lake.is_dir() else set[str](),
        "engine": {path.name for place in places for path in place.glob(f"{mirror.name}*.r*")},
    }
    return {where: names for where, names in found.items() if names}
