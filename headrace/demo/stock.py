"""The rows the shop starts with: every table, in the order foreign keys allow, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from uuid import UUID

from headrace.demo import words
from headrace.demo.copytext import Row

__all__ = ["TABLES", "Sizes", "Stock", "sku"]

TABLES = ("categories", "products", "customers", "addresses", "orders", "order_items", "payments", "reviews")
"""In the order in which foreign keys allow them to be filled."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many rows the seed writes; the sum is ``total``."""

    categories: int = 60
    products: int = 2_000
    customers: int = 4_000
    addresses: int = 5_000
    orders: int = 12_000
    order_items: int = 24_000
    payments: int = 11_000
    reviews: int = 4_000

    @property
    def total(self) -> int:
        """Return the number of rows of all tables."""
        return sum(getattr(self, table) for table in TABLES)

    def scaled(self, factor: float) -> Sizes:
        """Return sizes ``factor`` times as large, at least 10 each."""
        return Sizes(**{table: max(10, int(getattr(self, table) * factor)) for table in TABLES})


class Stock:
    """The rows of every table; ask for the tables in the order of :data:`TABLES`."""

    def __init__(self, rng: Random, sizes: Sizes) -> None:
        self.rng = rng
        self.sizes = sizes
        self.addresses: list[UUID] = []
        self.items = _spread(sizes.order_items, sizes.orders)

    def rows(self, table: str) -> Iterator[Row]:
        """Yield the table's rows, columns in catalogue order."""
        if table == "order_items":
            return (
                self._line(n, line) for n, lines in enumerate(self.items, 1) for line in range(1, lines + 1)
            )
        make: Callable[[int], Row] = getattr(self, f"_{table}")
        return (make(n) for n in range(1, getattr(self.sizes, table) + 1))

    def _one_of(self, table: str) -> int:
        return self.rng.randint(1, getattr(self.sizes, table))

    def _sku(self) -> str:
        return sku(self._one_of("products"))

    def _categories(self, n: int) -> Row:
        parent = n // 4 or None
        lineage: list[int] = []
        above = n
        while above := above // 4:
            lineage.insert(0, above)
        return n, parent, f"Category {n}", lineage, words.picked(self.rng, 3) or None

    def _products(self, n: int) -> Row:
        rng = self.rng
        return (
            sku(n),
            self._one_of("categories"),
            words.sentence(rng, 3),
            words.storage_filler(rng) if n % 5 == 0 else (words.sentence(rng, 12) if n % 7 else None),
            words.cents(rng, 900),
            words.digits(rng) if n % 9 else None,
            rng.randint(0, 500),
            words.document(rng),
            words.picked(rng, 4),
            [rng.randint(30, 50) for _ in range(rng.randint(0, 5))] if n % 3 else None,
            rng.randbytes(24) if n % 4 == 0 else None,
            rng.random() < 0.9,
            words.day(rng, 1990, 2026),
            words.moment(rng),
        )

    def _customers(self, n: int) -> Row:
        rng = self.rng
        return (
            n,
            f"customer{n}@shop.example",
            words.name(rng),
            rng.choice(words.TIERS),
            words.day(rng, 1899, 2008) if n % 6 else None,
            words.cents(rng, 5_000) - 1_000,
            words.document(rng) if n % 3 else None,
            words.picked(rng, 5) if n % 4 else None,
            rng.random() * 100,
            rng.choice((True, False, None)),
            words.unique(rng) if n % 5 == 0 else None,
            words.moment(rng),
            words.wall_clock(rng),
        )

    def _addresses(self, n: int) -> Row:
        rng = self.rng
        key = words.unique(rng)
        self.addresses.append(key)
        return (
            key,
            self._one_of("customers"),
            f"{words.sentence(rng, 2)} {rng.randint(1, 300)}",
            rng.choice(("Zürich", "Oslo", "São Paulo", "Kraków", "東京")),
            rng.choice(("CH", "NO", "BR", "PL", "JP")),
            rng.uniform(-90, 90),
            rng.randint(-1800, 1800) / 10,
            rng.choice((None, 0, 1, 12)),
            rng.random() < 0.5,
        )

    def _orders(self, n: int) -> Row:
        rng = self.rng
        return (
            n,
            self._one_of("customers"),
            rng.choice(self.addresses),
            rng.choice(("placed", "paid", "packed", "shipped", "delivered", "returned")),
            words.moment(rng),
            words.day(rng, 2025, 2026) if n % 8 else None,
            words.cents(rng, 2_000),
            words.digits(rng) if n % 10 == 0 else None,
            rng.random() < 0.1,
            words.sentence(rng, 6) if n % 6 == 0 else None,
            {"channel": rng.choice(("web", "app", "till")), "n": n},
        )

    def _line(self, order: int, line: int) -> Row:
        rng = self.rng
        return (
            order,
            line,
            self._sku(),
            rng.randint(1, 9),
            words.cents(rng, 300),
            words.digits(rng) if rng.random() < 0.1 else None,
            {"wrap": rng.random() < 0.5} if line == 1 else None,
            [f"S-{rng.getrandbits(32):08x}"] if line == 2 else None,
        )

    def _payments(self, n: int) -> Row:
        rng = self.rng
        return (
            words.unique(rng),
            self._one_of("orders"),
            rng.choice(("card", "invoice", "voucher", "cash on delivery")),
            words.cents(rng, 2_000),
            words.digits(rng) if n % 4 == 0 else None,
            words.moment(rng) if n % 3 else None,
            words.day(rng, 2025, 2026) if n % 3 else None,
            rng.random() < 0.05,
            {"auth": f"{rng.getrandbits(48):012x}"} if n % 2 else None,
        )

    def _reviews(self, n: int) -> Row:
        rng = self.rng
        return (
            n,
            self._sku(),
            self._one_of("customers"),
            rng.randint(1, 5),
            words.sentence(rng, 10),
            [rng.randint(0, 40), rng.randint(0, 9)],
            rng.choice((None, [], ["de"], ["pt-BR", None, 'a "q"', ""])),
            words.moment(rng),
            words.wall_clock(rng),
        )


def sku(n: int) -> str:
    """Return the ``n``-th product's natural key; a few carry characters that ids and URLs trip over."""
    return f"SKU-{n:05d}" + ("" if n % 97 else " ä/:%")


def _spread(total: int, over: int) -> list[int]:
    """Return ``over`` counts of 1–3 that sum to ``total`` as nearly as they can."""
    base, rest = divmod(total, over)
    counts = [base + (1 if n < rest else 0) for n in range(over)]
    for n in range(0, over - 1, 2):
        if counts[n] > 1:
            counts[n], counts[n + 1] = counts[n] - 1, counts[n + 1] + 1
    return counts
