"""A store is restored from a backup: it is brought forward again by itself, whether people write or not."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from headrace.control.registry import Registry
from sinks.document import exact, json_text
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client, path
from tests.support.shop import Shop

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

Restore = Callable[[], None]


def backed_up_cache(shop: Shop) -> Restore:
    redis: Any = Redis.from_url(shop.running.endpoints.redis_url)
    kept = {key: redis.dump(key) for key in redis.scan_iter(match=f"{shop.name}:*", count=1000)}

    def restore() -> None:
        with redis.pipeline(transaction=True) as at_once:
            for key in redis.scan_iter(match=f"{shop.name}:*", count=1000):
                at_once.unlink(key)
            for key, value in kept.items():
                at_once.restore(key, 0, value)
            at_once.execute()

    return restore


def backed_up_search(shop: Shop, closing: ExitStack) -> Restore:
    client = Client(ElasticsearchSink.Config(url=shop.running.endpoints.elasticsearch_url))
    closing.callback(client.close)

    def ask(method: str, target: str, body: Any = None) -> Any:
        return client.request(method, target, body).json()

    def read(index: str) -> list[dict[str, Any]]:
        ask("POST", path(index, "_refresh"))
        found = client.request("POST", path(index, "_search"), {"version": True, "size": 10_000}).body
        return list(exact(found)["hits"]["hits"])

    found = ask("GET", f"/{shop.name}-*?expand_wildcards=all")
    # The engine works meanwhile. Progress comes last: a batch in between would set it ahead of the rest.
    made = dict(sorted(found.items(), key=lambda item: "headrace_progress" in item[0]))
    kept = {name: read(name) for name in made}

    def restore() -> None:
        for name, index in made.items():
            ask("DELETE", path(name))
            ask("PUT", path(name), {"mappings": index["mappings"], "aliases": index["aliases"]})
            lines = [
                f'{{"index":{{"_id":{json.dumps(hit["_id"])},"version":{hit["_version"]},'
                f'"version_type":"external"}}}}\n{json_text(hit["_source"])}\n'
                for hit in kept[name]
            ]
            body = "".join(lines).encode()
            if body:
                told = client.request("POST", path(name, "_bulk"), body, mimetype="application/x-ndjson")
                # The engine may have noticed already and be ahead of the backup.
                assert {item["index"]["status"] for item in told.json()["items"]} <= {200, 201, 409}

    return restore


def backed_up_lake(shop: Shop, folder: Path) -> Restore:
    lake = Path(Registry(shop.context.registry).sink(f"{shop.name}_lake").settings["path"])
    shutil.copytree(lake, folder / "lake")

    def restore() -> None:
        lake.rename(folder / "later")
        shutil.copytree(folder / "lake", lake)
        shutil.rmtree(folder / "later")

    return restore


@contextmanager
def backups(shop: Shop, folder: Path) -> Iterator[dict[str, Restore]]:
    with ExitStack() as closing:
        yield {
            "cache": backed_up_cache(shop),
            "search": backed_up_search(shop, closing),
            "lake": backed_up_lake(shop, folder),
        }


def until_equal(shop: Shop, timeout: float = 90.0) -> None:
    deadline = time.monotonic() + timeout
    while differing := [c.as_dict() for c in shop.compare() if not c.equal]:
        assert time.monotonic() < deadline, differing
        time.sleep(0.5)


def test_a_store_that_was_restored_is_brought_forward(shop: Shop, tmp_path: Path) -> None:
    shop.write(1.0, seed=51)
    shop.converge()
    with backups(shop, tmp_path) as restores:
        shop.write(2.0, seed=52)
        shop.converge()
        for restore in restores.values():
            restore()
        assert any(not c.equal for c in shop.compare())
        until_equal(shop)  # nobody writes
        for restore in restores.values():
            restore()
        shop.write(1.0, seed=53)
        until_equal(shop)
    shop.converge()
