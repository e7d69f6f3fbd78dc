"""From nothing to a running stack with a seeded shop: whatever can happen at the same time does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from headrace.control.context import Context
from headrace.control.runner import ensure_engine
from headrace.demo import shop
from headrace.demo.ownership import Belongings
from headrace.demo.stock import Sizes
from headrace.local.endpoints import Endpoints
from headrace.local.events import StackEvent
from headrace.local.stack import Stack

__all__ = ["Boot", "Booted"]

Say = Callable[[str], None]
_UP = ("ready", "running")


@dataclass(frozen=True, slots=True)
class Booted:
    """A stack that is up and a shop that is seeded.

    Args:
        endpoints: The servers' addresses.
        context: The installation, for the control plane.
        belongings: What the demo owns in it.
        dsn: The shop's database.
    """

    endpoints: Endpoints
    context: Context
    belongings: Belongings
    dsn: str


class Boot:
    """Starts servers and engine and seeds the shop.

    The engine takes longest, so it starts as soon as its files are there, beside the servers. The
    shop is seeded as soon as Postgres answers, while the other servers still boot; only when an
    earlier demo left a pipeline, that is removed first, for which all servers are needed.

    Args:
        stack: The stack.
        context_of: Endpoints → the installation.
        seed, sizes: Of the shop.
        say: Told of every step.
    """

    def __init__(
        self,
        stack: Stack,
        context_of: Callable[[Endpoints], Context],
        *,
        seed: int,
        sizes: Sizes,
        say: Say,
    ) -> None:
        self._stack = stack
        self._context_of = context_of
        self._seed = seed
        self._sizes = sizes
        self._say = say
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="demo-boot")
        self._engine: Future[None] | None = None
        self._seeding: Future[str] | None = None
        self._lock = threading.Lock()
        self.started: set[str] = set()
        """Servers that did not run before."""
        self.belongings: Belongings | None = None
        """Known as soon as Postgres is up."""
        self.before: set[str] = set()
        """What others had registered by then."""

    def run(self) -> Booted:
        """Return when all of it is up.

        Raises:
            HeadraceError: When a server does not start, or the demo's names are somebody else's.
        """
        with self._pool:
            endpoints = self._stack.up(self._on_event)
            booted = self._booted(endpoints)
            if self._seeding is None:
                booted.belongings.refuse_strangers()
                booted.belongings.remove(self._say)
                self._seeding = self._pool.submit(self._fill)
            self._seeding.result()
            if self._engine is not None:
                self._engine.result()
        return booted

    def _booted(self, endpoints: Endpoints) -> Booted:
        context = self._context_of(endpoints)
        belongings = Belongings.of(self._stack.home.root, context, endpoints.postgres_dsn)
        return Booted(endpoints, context, belongings, shop.dsn_of(endpoints.postgres_dsn))

    def _on_event(self, event: StackEvent) -> None:
        if event.state != "starting" or event.detail:
            self._say(f"{event.server:<13} {event.state:<9} {event.seconds:5.1f} s  {event.detail}")
        if event.server == "artefacts":
            return
        if event.state == "ready":
            self.started.add(event.server)
        with self._lock:
            if self._engine is None:
                self._engine = self._pool.submit(self._start_engine)
            if event.server == "postgres" and event.state in _UP and self._seeding is None:
                self.belongings = self._booted(self._stack.endpoints()).belongings
                self.before = self.belongings.others()
                if not self.belongings.known():
                    self._seeding = self._pool.submit(self._fill)

    def _start_engine(self) -> None:
        ensure_engine(self._context_of(self._stack.endpoints()))

    def _fill(self) -> str:
        dsn = shop.create(self._stack.endpoints().postgres_dsn)
        counts = shop.seed(dsn, seed=self._seed, sizes=self._sizes)
        self._say(f"{'shop':<13} seeded           {sum(counts.values()):,} rows in {len(counts)} tables")
        return dsn
