"""From a database to three stores that equal it, whatever is done to the rows."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from redis import Redis

from headrace.control.registry import Registry
from headrace.control.runs.start import resnapshot
from headrace.model.schema import TableId
from tests.support.shop import Shop, open_shop
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]


LIMITS = r"""
UPDATE customers SET birthday = '9999-12-31', created_at = '0001-01-01 00:00:00+00',
    preferences = '[1, 1.10, 12345678901234567890, "\u00e9", null]' WHERE id = 1;
UPDATE payments SET amount = 9999999999.99, fee = -0.00 WHERE order_id = 7;
UPDATE payments SET amount = -9999999999.99, fee = 1e-20 WHERE order_id = 8;
UPDATE customers SET birthday = '0001-01-01', name = '', preferences = '"text"',
    interests = '{}' WHERE id = 2;
UPDATE customers SET preferences = '{}', interests = '{NULL,"","NULL"}', loyalty = 1e308 WHERE id = 3;
UPDATE customers SET local_time = '2026-03-29 02:30:00.000001', loyalty = -0.0 WHERE id = 4;
UPDATE products SET weight = 1e-40, sizes = '{-2147483648,2147483647}', thumbnail = '\x', tags = '{}'
    WHERE sku = 'SKU-00001';
UPDATE products SET weight = repeat('9', 60)::numeric + 0.5, description = repeat('long ', 40000)
    WHERE sku = 'SKU-00002'
"""


@pytest.fixture(scope="module")
def shop(stack: RunningStack) -> Iterator[Shop]:
    with open_shop(stack, "pipeline") as opened:
        yield opened


def run(shop: Shop, *statements: str) -> None:
    """Run all statements in one transaction."""
    with psycopg.connect(shop.dsn) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_the_snapshot_arrives_whole(shop: Shop) -> None:
    """Its time is that of the shop, which all tests share."""
    shop.converge()
    with shop.stores() as stores:
        for store in stores:
            assert store.counts(["order_items"]) == {"order_items": shop.sizes.order_items}


def test_what_people_do_arrives(shop: Shop) -> None:
    people = shop.people(seed=1, rate=400, bulk_rows=500)
    people.start()

    def done() -> bool:
        tally = people.tally()
        kinds = (tally.inserts, tally.updates, tally.deletes, tally.key_changes, tally.toast_untouched)
        return min(kinds) > 0 and tally.largest >= 500

    until(done, why=people.tally)
    people.stop()
    shop.converge()


def test_a_long_text_survives_an_update_that_does_not_touch_it_and_a_new_key(shop: Shop) -> None:
    sku = "SKU-00005"
    run(shop, f"UPDATE products SET stock = stock + 1 WHERE sku = '{sku}'")
    shop.converge()
    run(shop, f"UPDATE products SET sku = 'moved', stock = stock + 1 WHERE sku = '{sku}'")
    run(shop, "UPDATE products SET sku = 'moved again' WHERE sku = 'moved'")
    shop.converge()


def test_values_at_their_limits_arrive(shop: Shop) -> None:
    run(shop, *filter(str.strip, LIMITS.split(";")))
    shop.converge()


def test_a_key_that_dies_and_comes_back_in_one_transaction_lives(shop: Shop) -> None:
    run(
        shop,
        "CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT * FROM reviews WHERE id = 5",
        "DELETE FROM reviews WHERE id = 5",
        "INSERT INTO reviews SELECT * FROM kept",
        "UPDATE reviews SET rating = 4 WHERE id = 5",
        "DELETE FROM reviews WHERE id = 6",
    )
    shop.converge()


def test_a_truncate_arrives(shop: Shop) -> None:
    run(
        shop,
        "TRUNCATE reviews",
        "INSERT INTO reviews (sku, rating, body, votes, written_at)"
        " VALUES ('SKU-00001', 5, 'first after', '{}', now())",
    )
    shop.converge()
    with shop.stores() as stores:
        assert [store.counts(["reviews"]) for store in stores] == [{"reviews": 1}] * 3


@pytest.mark.deep
def test_what_was_damaged_is_whole_after_a_resnapshot(shop: Shop) -> None:
    registry = Registry(shop.context.registry)
    topic = next(t.topic for t in registry.source(shop.name).tables if t.schema.table.name == "categories")
    facts = registry.sink(f"{shop.name}_cache").tables[topic]
    with Redis.from_url(shop.running.endpoints.redis_url) as client:
        for number in ("1", "2"):  # keys that go would come back by themselves
            key = str(facts["key_template"]).replace("{id}", number)
            if facts["format"] == "hash":
                client.hset(key, "name", "damaged")
            else:
                client.set(key, str(client.get(key), "utf-8").replace('"name":"', '"name":"damaged '))
    damaged = [comparison for comparison in shop.compare() if not comparison.equal]
    assert [(c.store, c.table, c.different) for c in damaged] == [
        (f"{shop.name}_cache", "categories", {"1": ("name",), "2": ("name",)})
    ]
    resnapshot(shop.context, shop.name, tables=[TableId("public", "categories")])
    shop.converge()
