"""A store is restored from a backup: it is brought forward again by itself, whether people write or not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis

from headrace.control import deadletters
from headrace.control.deadletters import Chosen
from headrace.control.lag import State, measure
from headrace.control.registry import Registry
from headrace.control.runs import start as runs
from headrace.demo.stock import sku
from headrace.model.errors import SinkError
from headrace.model.schema import TableId
from sinks.document import exact, json_text
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client, path
from tests.support.put_back import put_back
from tests.support.redis_backup import backed_up_keys
from tests.support.shop import Shop
from tests.support.waiting import elapse, until
from tests.support.watched import watched

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(600)]

Restore = Callable[[], None]

MANY = """INSERT INTO reviews (sku, customer_id, rating, body, votes, written_at)
          SELECT %s, 1, 1, 'many', '{}', now() FROM generate_series(1, 40000)"""
FEWER = MANY.replace("40000", "2000")


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
        put_back(lake, folder / "lake", folder / "later")

    return restore


@contextmanager
def backups(shop: Shop, folder: Path) -> Iterator[dict[str, Restore]]:
    with ExitStack() as closing:
        yield {
            "cache": backed_up_keys(shop.running.endpoints.redis_url, f"{shop.name}:*"),
            "search": backed_up_search(shop, closing),
            "lake": backed_up_lake(shop, folder),
        }


def test_a_store_that_was_restored_is_brought_forward_and_told_to_be_behind(
    shop: Shop, tmp_path: Path
) -> None:
    shop.write(1.0, seed=51)
    shop.converge()
    with backups(shop, tmp_path) as restores:
        shop.write(2.0, seed=52)
        shop.converge()
        for restore in restores.values():
            restore()
        with watched(shop.context, shop.is_equal) as seen:
            shop.until_equal()  # nobody writes
        assert not seen.false_greens
        for restore in restores.values():
            restore()
        shop.write(1.0, seed=53)
        shop.until_equal()
    shop.converge()


def test_a_letter_that_was_replayed_waits_again_when_the_store_has_lost_it(shop: Shop) -> None:
    """Where the table is filled again for the stranger's key, each record of the row is a letter."""
    shop.converge()
    cache = next(name for name, kind in shop.sinks.items() if kind == "redis")
    redis: Any = Redis.from_url(shop.running.endpoints.redis_url)
    key, aside = f"{shop.name}:reviews:1", f"aside:{shop.name}:reviews:1"

    def waiting() -> int:
        return len(deadletters.letters(shop.context, Chosen(sink=cache)))

    def backed_up_while_refused() -> Callable[[], None]:
        with redis.pipeline(transaction=True) as both:
            both.rename(key, aside).lpush(key, "a stranger's").execute()
        with psycopg.connect(shop.dsn, autocommit=True) as database:
            database.execute("UPDATE reviews SET body = 'refused at first, ' || random() WHERE id = 1")
        until(waiting)
        elapse(2)  # its offset is settled
        with redis.pipeline(transaction=True) as both:
            both.delete(key).rename(aside, key).execute()
        return backed_up_keys(shop.running.endpoints.redis_url, f"{shop.name}:*")

    restore = backed_up_while_refused()
    while not waiting():  # the table was filled again in between, and the row with it
        restore = backed_up_while_refused()
    replayed(shop, cache)
    shop.converge()
    replayed(shop, cache)  # some may have been told while the table was filled
    assert waiting() == 0

    restore()
    with watched(shop.context, shop.is_equal) as seen:
        until(waiting, why=lambda: f"equal: {shop.is_equal()}")
        until(lambda: "1 row is behind" in said(shop, cache))
    assert not seen.false_greens
    replayed(shop, cache)
    shop.converge()


def replayed(shop: Shop, sink: str) -> None:
    """Replay letters of a sink until none waits: more may come while a table is filled again."""

    def none_waits() -> bool:
        told = deadletters.replay(shop.context, Chosen(sink=sink))
        assert not told.refused
        return not deadletters.letters(shop.context, Chosen(sink=sink))

    until(none_waits)


def said(shop: Shop, sink: str) -> str:
    return next(one for one in measure(shop.context).sinks if one.sink == sink).reason


def test_rows_that_were_swept_long_after_their_run_go_again_when_a_store_is_restored(
    shop: Shop, tmp_path: Path
) -> None:
    with psycopg.connect(shop.dsn, autocommit=True) as database:
        database.execute(FEWER, (sku(1),))
        shop.converge()
        database.execute(f"ALTER PUBLICATION headrace_{shop.name} DROP TABLE reviews")
        database.execute("DELETE FROM reviews WHERE body = 'many'")
        database.execute(f"ALTER PUBLICATION headrace_{shop.name} ADD TABLE reviews")
    with pytest.raises(SinkError) as caught:
        runs.resnapshot(shop.context, shop.name, tables=[TableId("public", "reviews")])
    assert caught.value.code == "RESNAPSHOT_SWEEP_LARGE"
    run = caught.value.hint.split()[3]
    with backups(shop, tmp_path) as restores:
        runs.resume(shop.context, run, sweep_many=True)
        runs.wait(shop.context, run)
        shop.converge()
        for restore in restores.values():
            restore()
        with watched(shop.context, shop.is_equal) as seen:
            shop.until_equal()  # nobody writes
        assert not seen.false_greens
    shop.converge()


def test_a_store_that_lost_everything_is_never_green_while_it_is_refilled(shop: Shop) -> None:
    """A1: Redis is flushed, with nobody writing and enough to refill for several looks."""
    with psycopg.connect(shop.dsn, autocommit=True) as database:
        database.execute(MANY, (sku(1),))
    shop.converge()
    redis: Any = Redis.from_url(shop.running.endpoints.redis_url)

    def rows() -> int:
        keys = redis.scan_iter(match=f"{shop.name}:*", count=1000)
        return sum(b"__headrace" not in key for key in keys)

    wanted = rows()
    cache = next(name for name, kind in shop.sinks.items() if kind == "redis")
    with watched(shop.context, lambda: rows() >= wanted, every=0.05) as seen:
        redis.flushall()
        until(lambda: rows() >= wanted)
        shop.drain()
    assert not seen.false_greens
    late = [look for look in seen.looks if not look.equal]
    said = {table.state for look in late for table in look.report.tables if table.sink == cache}
    assert State.CATCHING_UP in said
    told = [table.lag_records or 0 for look in late for table in look.report.tables if table.sink == cache]
    assert max(told) > 0  # the store's own numbers
    with psycopg.connect(shop.dsn, autocommit=True) as database:
        database.execute("DELETE FROM reviews WHERE body = 'many'")
    shop.converge()
