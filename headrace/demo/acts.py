"""What visitors and staff of the shop do, each act one transaction.

Among them the shapes that break replication: hot rows, keys that change (with cascades), keys that die and
come back, rows that live for one transaction, work that is taken back, rows whose long text stays untouched.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from random import Random

from psycopg import Rollback
from psycopg.types.json import Jsonb

from headrace.demo import words
from headrace.demo.ledger import Visit
from headrace.demo.stock import Sizes, sku

__all__ = ["ACTS", "Act", "Regulars", "recalculate"]


class Regulars:
    """Which of the seeded rows acts fall on: a few of them most of the time (Zipf's law).

    Products of the last tenth are never ordered, so that they can be renamed under everyone's eyes.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.ordered = max(1, sizes.products * 9 // 10)
        self._weights = list(accumulate(1 / rank for rank in range(1, self.ordered + 1)))

    def product(self, rng: Random) -> int:
        """Return the number of a product, 1 the most often."""
        return 1 + min(bisect(self._weights, rng.random() * self._weights[-1]), self.ordered - 1)

    def cold_product(self, rng: Random) -> int:
        """Return the number of a product nobody orders."""
        return rng.randint(min(self.ordered + 1, self.sizes.products), self.sizes.products)

    def customer(self, rng: Random) -> int:
        """Return a customer's id; one in three times that of the house account."""
        return 1 if rng.random() < 0.33 else rng.randint(1, self.sizes.customers)

    def order(self, rng: Random) -> int:
        """Return an order's id; it may be gone."""
        return rng.randint(1, self.sizes.orders)

    def review(self, rng: Random) -> int:
        """Return a review's id, most often one of the first twenty; it may be gone."""
        return rng.randint(1, 20 if rng.random() < 0.5 else self.sizes.reviews)


Act = Callable[[Visit, Regulars], None]

_ITEM = "INSERT INTO order_items VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
_REVIEW = """INSERT INTO reviews (sku, customer_id, rating, body, votes, languages, written_at, shown_from)
             VALUES (%s, %s, %s, %s, %s, %s, now(), localtimestamp) RETURNING id"""
_PRODUCT = """INSERT INTO products (sku, category_id, name, description, price, weight, stock, attributes,
                                    tags, active, updated_at)
              VALUES (%s, 1, %s, %s, %s, %s, 1, %s, %s, true, now())"""


def place_order(visit: Visit, known: Regulars) -> None:
    """Insert an order, its items and a payment; take the stock off the shelf."""
    rng = visit.rng
    order = visit.insert(
        """INSERT INTO orders (customer_id, status, placed_at, promised, total, exchange_rate, gift, note,
                               meta)
           VALUES (%s, 'placed', now(), current_date + 3, %s, %s, %s, %s, %s) RETURNING id""",
        known.customer(rng),
        words.cents(rng, 2_000),
        words.digits(rng),
        rng.random() < 0.1,
        words.sentence(rng, 5),
        Jsonb(words.document(rng)),
    )
    items = sorted({known.product(rng) for _ in range(rng.randint(1, 4))})
    visit.insert_many(
        _ITEM,
        [
            (
                order,
                line,
                sku(n),
                rng.randint(1, 5),
                words.cents(rng, 300),
                words.digits(rng),
                None,
                ["S-1", None],
            )
            for line, n in enumerate(items, 1)
        ],
    )
    visit.insert(
        """INSERT INTO payments (id, order_id, method, amount, refunded)
           VALUES (gen_random_uuid(), %s, 'card', %s, false)""",
        order,
        words.cents(rng, 2_000),
    )


def progress_order(visit: Visit, known: Regulars) -> None:
    """Move an order along and note that it was paid."""
    order = known.order(visit.rng)
    visit.update(
        "UPDATE orders SET status = %s, meta = meta || %s WHERE id = %s",
        visit.rng.choice(("paid", "packed", "shipped", "delivered")),
        Jsonb({"by": words.name(visit.rng)}),
        order,
    )
    visit.update("UPDATE payments SET paid_at = now(), settled = current_date WHERE order_id = %s", order)


def trade(visit: Visit, known: Regulars) -> None:
    """Change price and stock of a sought-after product; its description, perhaps long, stays as it is."""
    n = known.product(visit.rng)
    matched = visit.update(
        "UPDATE products SET price = %s, stock = stock + %s, updated_at = now() WHERE sku = %s",
        words.cents(visit.rng, 900),
        visit.rng.randint(-3, 9),
        sku(n),
    )
    if n % 5 == 0:
        visit.tally.toast_untouched += matched


def rewrite_description(visit: Visit, known: Regulars) -> None:
    """Give a product another text: long to short, short to long, none."""
    rng = visit.rng
    text = rng.choice((words.storage_filler(rng), words.sentence(rng, 8), None))
    visit.update(
        "UPDATE products SET description = %s, weight = %s WHERE sku = %s",
        text,
        words.digits(rng),
        sku(known.cold_product(rng)),
    )


def serve_customer(visit: Visit, known: Regulars) -> None:
    """Change a customer's settings, twice; the second time within a part that is taken back."""
    rng = visit.rng
    customer = known.customer(rng)
    visit.update(
        """UPDATE customers SET preferences = %s, interests = %s, credit = credit + %s, loyalty = %s
           WHERE id = %s""",
        Jsonb(words.document(rng)),
        words.picked(rng, 4),
        words.cents(rng, 20) - 10,
        rng.random() * 100,
        customer,
    )
    if rng.random() < 0.3:
        with visit.connection.transaction() as part:
            visit.connection.execute("UPDATE customers SET tier = 'gold' WHERE id = %s", (customer,))
            visit.tally.rolled_back += 1
            raise Rollback(part)


def write_review(visit: Visit, known: Regulars) -> None:
    """Insert a review."""
    rng = visit.rng
    visit.insert(
        _REVIEW,
        sku(known.product(rng)),
        known.customer(rng),
        rng.randint(1, 5),
        words.sentence(rng, 12),
        [0, 0],
        rng.choice((None, [], ["nb", None])),
    )


def vote(visit: Visit, known: Regulars) -> None:
    """Vote for a review; few reviews get most of the votes."""
    visit.update("UPDATE reviews SET votes[1] = votes[1] + 1 WHERE id = %s", known.review(visit.rng))


def remove_review(visit: Visit, known: Regulars) -> None:
    """Delete a review."""
    visit.delete("DELETE FROM reviews WHERE id = %s", visit.rng.randint(21, known.sizes.reviews + 200))


def cancel_order(visit: Visit, known: Regulars) -> None:
    """Delete an order with everything that hangs on it."""
    order = known.order(visit.rng)
    visit.connection.execute("SELECT 1 FROM orders WHERE id = %s FOR UPDATE", (order,))
    for table in ("order_items", "payments"):
        visit.delete(f"DELETE FROM {table} WHERE order_id = %s", order)  # noqa: S608  (two constants)
    visit.delete("DELETE FROM orders WHERE id = %s", order)


def renumber_items(visit: Visit, known: Regulars) -> None:
    """Change half of a composite key."""
    visit.rekey("UPDATE order_items SET line_no = line_no + 10 WHERE order_id = %s", known.order(visit.rng))


def rename_product(visit: Visit, known: Regulars) -> None:
    """Change a natural key, or change it back: the change cascades, a long description goes along unseen."""
    old = sku(known.cold_product(visit.rng))
    new = f"{old} (new)"
    if not visit.ask("SELECT true FROM products WHERE sku = %s", old):
        old, new = new, old
    if visit.rekey("UPDATE products SET sku = %s WHERE sku = %s", new, old):
        for table in ("order_items", "reviews"):
            visit.tally.updates += visit.ask(f"SELECT count(*) FROM {table} WHERE sku = %s", new)  # noqa: S608


def try_product(visit: Visit, known: Regulars) -> None:
    """Insert a product, change it and delete it in one transaction."""
    rng = visit.rng
    new = f"TRY-{rng.getrandbits(40)}"
    product = (new, "try", words.storage_filler(rng), words.cents(rng, 9), words.digits(rng))
    visit.insert(_PRODUCT, *product, Jsonb({"n": known.sizes.products}), [])
    visit.update("UPDATE products SET price = price * 2 WHERE sku = %s", new)
    visit.delete("DELETE FROM products WHERE sku = %s", new)


def move_house(visit: Visit, known: Regulars) -> None:
    """Let an address's key die and come back with another content."""
    rng = visit.rng
    customer = known.customer(rng)
    key = visit.ask(
        """SELECT id FROM addresses a WHERE customer_id = %s
           AND NOT EXISTS (SELECT FROM orders WHERE address_id = a.id) LIMIT 1 FOR UPDATE""",
        customer,
    )
    if key:
        visit.delete("DELETE FROM addresses WHERE id = %s", key)
    for new in (key or words.unique(rng), words.unique(rng)):
        visit.insert(
            "INSERT INTO addresses VALUES (%s, %s, %s, 'Oslo', 'NO', %s, %s, 3, true)",
            new,
            customer,
            words.sentence(rng, 3),
            rng.uniform(-90, 90),
            rng.randint(-1800, 1800) / 10,
        )


def regret(visit: Visit, known: Regulars) -> None:
    """Do a lot and take it all back."""
    with visit.connection.transaction() as whole:
        visit.connection.execute("DELETE FROM reviews WHERE id < 30")
        visit.connection.execute(
            "UPDATE products SET price = 0, description = '' WHERE sku = %s",
            (sku(known.cold_product(visit.rng)),),
        )
        visit.tally.rolled_back += 1
        raise Rollback(whole)


def recalculate(visit: Visit, rows: int) -> None:
    """Change at least ``rows`` orders in one transaction, or all there are.

    A few more are asked for, because others may delete some of them in the meantime.
    """
    visit.update(
        """UPDATE orders SET total = total + 0.01, meta = meta || '{"recalculated": true}'
           WHERE id IN (SELECT id FROM orders ORDER BY id LIMIT %s)""",
        rows + rows // 100,
    )


ACTS: tuple[tuple[Act, int], ...] = (
    (place_order, 18),
    (progress_order, 20),
    (trade, 26),
    (rewrite_description, 3),
    (serve_customer, 12),
    (write_review, 8),
    (vote, 12),
    (remove_review, 4),
    (cancel_order, 4),
    (renumber_items, 4),
    (rename_product, 2),
    (try_product, 2),
    (move_house, 4),
    (regret, 2),
)
"""Every act and how often it happens, relative to the others."""
