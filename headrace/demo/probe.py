"""Measures by looking: marker rows are committed, and every store is asked for them until it has them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite

import psycopg

from headrace.demo.stock import sku
from headrace.demo.stores.base import Asked, Store
from headrace.model.key import Key
from headrace.model.schema import TableSchema

__all__ = ["MARKED", "FirstRows", "Latencies", "Markers", "percentile"]

MARKED = "reviews"
"""The table that markers are written to: reviews with a rating of 0, which nobody else gives or removes."""

_MARKER = """INSERT INTO reviews (sku, customer_id, rating, body, votes, written_at)
             VALUES (%s, 1, 0, 'marker', '{}', now()) RETURNING id"""


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value that ``share`` of all values do not exceed (nearest rank); None without values."""
    if not values:
        return None
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, int(share * len(ranked) + 0.999999) - 1))]


@dataclass(slots=True)
class Latencies:
    """Milliseconds from just before a marker's commit until it was read.

    Args:
        seen: One per marker that was read.
        unseen: Markers that were not, by the end.
    """

    seen: list[float] = field(default_factory=list)
    unseen: int = 0

    def as_dict(self) -> dict[str, float | int | None]:
        """Return p50, p99 and maximum in whole milliseconds, and how many markers were seen.

        An unseen marker counts as one that took for ever; a rank that falls on one is None.
        """
        times = [*self.seen, *[inf] * self.unseen]
        ranks = {
            "p50": percentile(times, 0.5),
            "p99": percentile(times, 0.99),
            "max": max(times, default=None),
        }
        rounded = {name: round(t) if t is not None and isfinite(t) else None for name, t in ranks.items()}
        return {**rounded, "markers": len(self.seen)}


class Markers:
    """Commits a marker every so often and watches each store in a thread of its own.

    Args:
        dsn: The shop's database.
        schema: Of :data:`MARKED`.
        stores: Who is asked, with the seconds between two questions.
        every: Seconds between two markers.
    """

    def __init__(
        self, dsn: str, schema: TableSchema, stores: Mapping[Store, float], *, every: float = 0.5
    ) -> None:
        self._dsn = dsn
        self._schema = schema
        self._every = every
        self._stop = threading.Event()
        self._complete = threading.Event()
        self._written = 0
        self._waiting: dict[str, deque[tuple[Key, float]]] = {store.name: deque() for store in stores}
        self._latencies = {store.name: Latencies() for store in stores}
        self._writer = threading.Thread(target=self._write, name="marker-writer", daemon=True)
        self._watchers = [
            threading.Thread(
                target=self._watch, args=(store, pause), name=f"marker-{store.name}", daemon=True
            )
            for store, pause in stores.items()
        ]

    def start(self) -> None:
        """Begin."""
        for thread in (self._writer, *self._watchers):
            thread.start()

    def stop(self, *, patience: float = 15.0) -> dict[str, Latencies]:
        """Write no more, wait until the last markers are seen, and return what was measured.

        Args:
            patience: Seconds to wait for markers under way; what is unseen then is counted as such.
        """
        self._stop.set()
        self._writer.join()
        self._complete.set()  # not before the last marker is among those that are waited for
        deadline = time.monotonic() + patience
        for thread in self._watchers:
            thread.join(max(0.0, deadline - time.monotonic()))
        for name, waiting in self._waiting.items():
            self._latencies[name].unseen = len(waiting)
            waiting.clear()
        return self._latencies

    @property
    def written(self) -> int:
        """Return how many markers were committed."""
        return self._written

    def current(self) -> dict[str, dict[str, float | int | None]]:
        """Return what is measured so far, by store."""
        return {name: latencies.as_dict() for name, latencies in self._latencies.items()}

    def _write(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True, connect_timeout=5) as connection:
                while not self._stop.wait(self._every):
                    asked = time.monotonic()
                    row = connection.execute(_MARKER, (sku(1),)).fetchone()
                    self._written += 1
                    for waiting in self._waiting.values():
                        waiting.append((Key.of([str(row[0])] if row else []), asked))
        except psycopg.Error:
            # The workload, on the same database, reports what is wrong with it.
            self._stop.set()

    def _watch(self, store: Store, pause: float) -> None:
        waiting, latencies = self._waiting[store.name], self._latencies[store.name]
        while waiting or not self._complete.is_set():
            if waiting:
                pending = list(waiting)
                try:
                    present = {key for _, key in store.present([(self._schema, key) for key, _ in pending])}
                except Exception:  # noqa: BLE001  (a store that does not answer shows nothing; the next look may)
                    present = set()
                now = time.monotonic()
                for key, asked in pending:
                    if key in present:
                        waiting.remove((key, asked))
                        latencies.seen.append((now - asked) * 1000)
            time.sleep(pause)


class FirstRows:
    """Watches stores until each shows a first row; one thread for all of them.

    Args:
        began: When the clock started, by :func:`time.monotonic`.
        stores: Who is asked.
        samples: A few rows that the original has.
    """

    def __init__(self, began: float, stores: Sequence[Store], samples: Sequence[Asked]) -> None:
        self._began = began
        self._stores = list(stores)
        self._samples = samples
        self._stop = threading.Event()
        self.seconds: dict[str, float] = {}
        self._thread = threading.Thread(target=self._watch, name="first-rows", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join()

    @property
    def complete(self) -> bool:
        """Return whether every store has shown a row."""
        return len(self.seconds) == len(self._stores)

    def _watch(self) -> None:
        while not self.complete and not self._stop.wait(0.2):
            for store in self._stores:
                if store.name not in self.seconds and self._shows(store):
                    self.seconds[store.name] = time.monotonic() - self._began

    def _shows(self, store: Store) -> bool:
        try:
            return bool(store.present(self._samples))
        except Exception:  # noqa: BLE001  (not there yet)
            return False
