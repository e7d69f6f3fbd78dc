"""The plain consumer as a side: started on a backlog, timed to its end, compared, its targets removed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from elasticsearch import Elasticsearch
from redis import Redis

from headrace.demo.stores.base import Facts, Store
from headrace.demo.stores.cache import CacheStore
from headrace.demo.stores.lake import LakeStore
from headrace.demo.stores.search import SearchStore
from sinks.elasticsearch.mapping import table_mapping
from tests.bench.drain.backlog import Backlog
from tests.bench.drain.meter import Meter
from tests.bench.drain.ours import Drained
from tests.bench.drain.patience import patiently
from tests.bench.peers.consumer import Table, Task

__all__ = ["INDEX_SETTINGS", "NAME", "STORES", "drain_plainly"]

NAME = "plain_consumer"
STORES = ("elasticsearch", "redis", "delta")
INDEX_SETTINGS = {
    "number_of_shards": 1,
    "number_of_replicas": 0,
    "gc_deletes": "5m",
}


def drain_plainly(backlog: Backlog, store: str, *, threads: int = 2) -> Drained:
    """Let the consumer apply the whole backlog to fresh targets and compare what they hold."""
    task = _task(backlog, store, threads)
    with _targets(backlog, task), _process(task) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with Meter(backlog.running.home.run, {NAME: process.pid}) as meter:
            began = time.monotonic()
            process.stdin.write("go\n")
            process.stdin.flush()
            said = process.stdout.readline().split()
            seconds = time.monotonic() - began
        if not said or said[0] != "done":
            raise RuntimeError(f"the plain consumer ended with {process.wait()}")
        with closing(_store(backlog, task)) as reader:
            wrong = [str(found.as_dict()) for found in backlog.differences(reader)]
        if int(said[1]) != backlog.changes:
            wrong.append(f"the plain consumer read {said[1]} of {backlog.changes} changes")
    return Drained({store: seconds}, meter, tuple(wrong))


def _task(backlog: Backlog, store: str, threads: int) -> Task:
    endpoints = backlog.running.endpoints
    url, target = {
        "elasticsearch": (endpoints.elasticsearch_url, "plain-{}"),
        "redis": (endpoints.redis_url, "plain:{}:"),
        "delta": (str(endpoints.lake_path / "plain"), "{}"),
    }[store]
    tables = {}
    for entry in backlog.tables:
        schema = entry.schema
        types = {column.name: str(column.type.value) for column in schema.columns}
        tables[entry.topic] = Table(target.format(schema.table.name), schema.key, types, entry.epoch)
    group = f"plain-{store}-{time.time_ns()}"
    # A MERGE costs much whatever its size, so there it gets more rows at once.
    batch = 50_000 if store == "delta" else 10_000
    return Task(store, url, endpoints.kafka_bootstrap, group, tables, batch, threads)


@contextmanager
def _targets(backlog: Backlog, task: Task) -> Iterator[None]:
    if task.store == "redis":
        try:
            yield
        finally:
            with closing(Redis.from_url(task.url)) as redis:
                for key in redis.scan_iter(match="plain:*", count=5_000):
                    redis.unlink(key)
        return
    if task.store == "delta":
        try:
            yield
        finally:
            shutil.rmtree(task.url, ignore_errors=True)
        return
    with closing(Elasticsearch(task.url, request_timeout=60)) as client:
        try:
            for entry in backlog.tables:
                index, mapping = task.tables[entry.topic].target, table_mapping(entry.schema)
                made = partial(client.indices.create, index=index, mappings=mapping, settings=INDEX_SETTINGS)
                patiently(made)
            yield
        finally:
            for table in task.tables.values():
                patiently(partial(client.indices.delete, index=table.target, ignore_unavailable=True))


@contextmanager
def _process(task: Task) -> Iterator[subprocess.Popen[str]]:
    """Yield the consumer, its imports done, its clients made."""
    command = [sys.executable, "-m", "tests.bench.peers.consumer"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(task.dump())
        process.stdin.flush()
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the plain consumer did not start")
        yield process
    finally:
        process.kill()
        process.communicate()


def _store(backlog: Backlog, task: Task) -> Store:
    targets = {entry.schema.table.name: task.tables[entry.topic] for entry in backlog.tables}
    if task.store == "delta":
        lake: Facts = {name: {"path": f"{task.url}/{table.target}"} for name, table in targets.items()}
        return LakeStore(NAME, lake)
    ids = {name: ":".join(f"{{{column}}}" for column in table.key) for name, table in targets.items()}
    if task.store == "redis":
        keys: Facts = {
            name: {"key_template": table.target + ids[name], "format": "json"}
            for name, table in targets.items()
        }
        return CacheStore(NAME, task.url, keys)
    indices: Facts = {
        name: {"alias": table.target, "id_template": ids[name]} for name, table in targets.items()
    }
    return SearchStore(NAME, task.url, indices)
