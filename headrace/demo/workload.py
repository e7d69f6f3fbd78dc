"""People in the shop: a few connections that change it at a steady pace until told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import psycopg

from headrace.demo.acts import ACTS, Act, Regulars, recalculate
from headrace.demo.ledger import Tally, Visit
from headrace.demo.stock import Sizes
from headrace.model.errors import SourceError

__all__ = ["Pace", "Workload"]

_REFUSED = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.IntegrityError,
)


class Pace:
    """Spends a shared allowance of changes per second.

    Args:
        rate: Changes per second over all who share it.
        stop: Waiting ends when it is set.
    """

    def __init__(self, rate: float, stop: threading.Event) -> None:
        self._interval = 1 / rate
        self._stop = stop
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def spend(self, changes: int) -> None:
        """Take ``changes`` off the allowance and wait until that was earned."""
        with self._lock:
            start = max(self._free_at, time.monotonic() - 0.2)
            self._free_at = start + changes * self._interval
        self._stop.wait(max(0.0, start - time.monotonic()))


class _Line:
    """A connection that is made again when it breaks, for ``patience`` seconds."""

    def __init__(self, dsn: str, patience: float, stop: threading.Event) -> None:
        self._dsn = dsn
        self._patience = patience
        self._stop = stop
        self._connection: psycopg.Connection[Any] | None = None
        self._lost_at: float | None = None

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def call(self, work: Callable[[psycopg.Connection[Any]], int]) -> int | None:
        """Return what ``work`` returns, or None when the connection broke under it."""
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self._dsn, autocommit=True, connect_timeout=5)
            result = work(self._connection)
        # A rollback over a connection that breaks comes out as the Rollback that asked for it.
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.Rollback):
            self._lost_at = self._lost_at or time.monotonic()
            if time.monotonic() - self._lost_at > self._patience:
                raise
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._stop.wait(0.3)
            return None
        self._lost_at = None
        return result


class Workload:
    """Two or three writers with their own connections and their own seeded choices.

    Args:
        dsn: The shop's database.
        rate: Row changes per second over all writers, the one large transaction aside.
        seed: Makes every writer's choices repeatable; how they interleave is not.
        writers: How many connections write.
        bulk_rows: Size of the one large transaction.
        bulk_after: Seconds after which the first writer makes it.
        patience: Seconds a writer goes on trying to connect when the database is gone.
    """

    def __init__(
        self,
        dsn: str,
        *,
        rate: float = 200.0,
        seed: int = 1,
        writers: int = 3,
        sizes: Sizes | None = None,
        bulk_rows: int = 5_000,
        bulk_after: float = 5.0,
        patience: float = 30.0,
    ) -> None:
        self._dsn = dsn
        self._seed = seed
        self._known = Regulars(sizes or Sizes())
        self._bulk = (bulk_rows, bulk_after)
        self._patience = patience
        self._stop = threading.Event()
        self._pace = Pace(rate, self._stop)
        self._lock = threading.Lock()
        self._tally = Tally()
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guarded, args=(n,), name=f"shop-writer-{n}", daemon=True)
            for n in range(writers)
        ]

    def start(self) -> None:
        """Let the writers begin."""
        self._started = time.monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self) -> Tally:
        """Let every writer finish its transaction and return what they did; may be called again.

        Raises:
            SourceError: When a writer had to give up (``DEMO_WORKLOAD_FAILED``).
        """
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        if self._failure is not None:
            raise SourceError(
                f"A writer of the workload gave up: {self._failure}",
                code="DEMO_WORKLOAD_FAILED",
                hint="See the Postgres log of the stack.",
            ) from self._failure
        return self.tally()

    def tally(self) -> Tally:
        """Return what is committed so far."""
        with self._lock:
            copy = Tally()
            copy.add(self._tally)
            return copy

    @property
    def failed(self) -> bool:
        """Return whether a writer had to give up."""
        return self._failure is not None

    def _guarded(self, n: int) -> None:
        try:
            self._write(n)
        except Exception as error:  # noqa: BLE001  (handed to stop(), which raises it)
            self._failure = error
            self._stop.set()

    def _write(self, n: int) -> None:
        rng = Random(f"{self._seed}/{n}")  # noqa: S311  (sample data, no secret)
        first_round = [act for act, _ in ACTS]
        rng.shuffle(first_round)
        acts, weights = zip(*ACTS, strict=True)
        bulk_pending = n == 0 and self._bulk[0] > 0
        with _Line(self._dsn, self._patience, self._stop) as line:
            while not self._stop.is_set():
                bulk = bulk_pending and time.monotonic() - self._started >= self._bulk[1]
                act = None if bulk else first_round[-1] if first_round else rng.choices(acts, weights)[0]
                changes = line.call(partial(self._transact, rng=rng, act=act))
                if changes is None:
                    continue
                if bulk:
                    bulk_pending = False
                else:
                    self._pace.spend(changes)
                    del first_round[-1:]

    def _transact(self, connection: psycopg.Connection[Any], rng: Random, act: Act | None) -> int:
        visit = Visit(connection, rng)
        try:
            with connection.transaction():
                if act is None:
                    recalculate(visit, self._bulk[0])
                else:
                    act(visit, self._known)
        except _REFUSED:
            visit.tally = Tally(conflicts=1)
        changes = visit.tally.changes
        visit.tally.largest = changes
        visit.tally.transactions = 1 if changes else 0
        with self._lock:
            self._tally.add(visit.tally)
        return max(1, changes)
