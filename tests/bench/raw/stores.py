"""Elasticsearch and Redis alone, fed by their own clients with bytes that were made before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from importlib.metadata import version
from itertools import chain
from typing import Any

from elasticsearch import Elasticsearch

from sinks.document import Document
from sinks.elasticsearch.mapping import table_mapping
from sinks.elasticsearch.names import META_FIELD, field_of
from tests.bench.apply.elasticsearch import bulk_bodies, patiently
from tests.bench.apply.products import SCHEMA, batches
from tests.bench.apply.redis import redis_sides
from tests.bench.apply.rounds import Side
from tests.bench.apply.stores import server_versions
from tests.bench.meter import Meter, race, servers
from tests.bench.results import Result
from tests.bench.suite import Benchmark, Setting
from tests.support.stack import running_stack

__all__ = ["BENCHMARKS"]

_ROWS = 20_000
_INDEX = "raw"
_SENDERS = (1, 2)
_SIZES = (500, 2_000, 5_000)


def _elasticsearch(setting: Setting) -> Iterator[Result]:
    changes = list(chain.from_iterable(batches(_ROWS)["insert"]))
    document = Document(SCHEMA, field_of, objects_only=True, reserved=(META_FIELD,))
    bodies = {size: list(bulk_bodies(document, changes, guarded=True, size=size)) for size in _SIZES}
    with running_stack({"elasticsearch"}) as running:
        at = running.endpoints
        with closing(Elasticsearch(at.elasticsearch_url, request_timeout=60)) as client:
            counts: list[int] = []

            def afresh() -> None:
                patiently(lambda: client.indices.refresh(index=_INDEX))
                counts.append(int(client.count(index=_INDEX)["count"]))
                client.indices.delete(index=_INDEX)
                _create(client)

            _create(client)
            ways = {
                f"{senders} × {size:,}": partial(_bulk, client, bodies[size], senders)
                for senders in _SENDERS
                for size in _SIZES
            }
            meter = Meter(servers(running.home.run))
            sides = race(ways, setting.runs, meter, between=afresh)
        yield Result(
            "raw.elasticsearch",
            "bulk requests with external versions, by senders and operations in a request",
            "rows/s",
            sides,
            equal=set(counts) == {_ROWS},
            versions=server_versions(at, frozenset({"elasticsearch"}))
            | {"elasticsearch (Python)": version("elasticsearch")},
            settings={
                "rows": _ROWS,
                "row": "a product of twelve columns",
                "checked": "the number of documents",
            },
        )


def _create(client: Elasticsearch) -> None:
    settings = {"number_of_shards": 1, "number_of_replicas": 0}
    patiently(lambda: client.indices.create(index=_INDEX, mappings=table_mapping(SCHEMA), settings=settings))


def _bulk(client: Elasticsearch, bodies: Sequence[bytes], senders: int) -> int:
    def send(body: bytes) -> Any:
        # The client takes bytes, and sends them as they are.
        operations: Any = [body]
        return client.bulk(index=_INDEX, operations=operations, filter_path="errors")

    with ThreadPoolExecutor(senders) as pool:
        answers = list(pool.map(send, bodies))
    assert not any(answer["errors"] for answer in answers)
    return _ROWS


_REDIS = {
    ("json", "plain"): "SET, pipelined",
    ("json", "guarded"): "grouped Lua, a text a row",
    ("hash", "plain"): "HSET, pipelined",
    ("hash", "guarded"): "grouped Lua, a hash a row",
}


def _redis(setting: Setting) -> Iterator[Result]:
    work = batches(_ROWS)
    with running_stack({"redis"}) as running:
        url = running.endpoints.redis_url
        with redis_sides(url, "json", work) as texts, redis_sides(url, "hash", work) as hashes:
            sides = {
                _REDIS[style, side.name]: side
                for style, found in (("json", texts), ("hash", hashes))
                for side in found
                if (style, side.name) in _REDIS
            }
            lost: list[str] = []
            wrote: list[Side] = []

            def write(name: str) -> int:
                wrote[:] = [sides[name]]
                for number in range(len(work["insert"])):
                    sides[name].write("insert", number)
                return _ROWS

            def afresh() -> None:
                held = len(wrote[0].content())
                if held != _ROWS:
                    lost.append(f"{held} rows held, not {_ROWS}")
                wrote[0].close()  # empties the database

            for side in sides.values():
                side.open()
            measured = race(
                {name: partial(write, name) for name in sides},
                setting.runs,
                Meter(servers(running.home.run)),
                between=afresh,
            )
        yield Result(
            "raw.redis",
            "new rows as ready-made values, by kind of command",
            "rows/s",
            measured,
            equal=not lost,
            failure=lost[0] if lost else None,
            versions=server_versions(running.endpoints, frozenset({"redis"}))
            | {"redis (Python)": version("redis"), "hiredis (Python)": version("hiredis")},
            settings={"rows": _ROWS, "row": "a product of twelve columns", "checked": "the number of rows"},
        )


BENCHMARKS = (
    Benchmark("raw.elasticsearch", "raw", 0.9, headline=False, run=_elasticsearch),
    Benchmark("raw.redis", "raw", 0.4, headline=False, run=_redis),
)
