"""The demo's shop with three sinks on a stack, small, for tests that break it and want it equal again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from headrace.cli.context import open_context
from headrace.control import sink as control_sink
from headrace.control import source as control_source
from headrace.control.context import Context
from headrace.control.lag import measure
from headrace.control.registry import Registry
from headrace.demo import shop
from headrace.demo.compare import Comparison
from headrace.demo.ledger import Tally
from headrace.demo.lookout import behind
from headrace.demo.pipeline import open_stores, register
from headrace.demo.stock import TABLES, Sizes
from headrace.demo.stores.base import Store
from headrace.demo.verdict import compare_all
from headrace.demo.workload import Workload
from tests.support.stack import RunningStack
from tests.support.waiting import elapse, settle, until

__all__ = ["Shop", "open_shop"]


@dataclass(frozen=True, slots=True)
class Shop:
    """A source and three sinks that were equal once.

    Attributes:
        running: The stack.
        context: For the control plane.
        name: Of the source, and of its database.
        sinks: Name → kind.
        dsn: The shop's database.
        sizes: Of the seed.
    """

    running: RunningStack
    context: Context
    name: str
    sinks: dict[str, str]
    dsn: str
    sizes: Sizes

    def people(
        self, *, seed: int, rate: float = 150.0, bulk_rows: int = 0, bulk_after: float = 1.0
    ) -> Workload:
        """Return writers that have not begun yet; they outlast a Postgres that is killed."""
        return Workload(
            self.dsn,
            rate=rate,
            seed=seed,
            writers=2,
            sizes=self.sizes,
            bulk_rows=bulk_rows,
            bulk_after=bulk_after,
            patience=90.0,
        )

    def write(self, seconds: float, *, seed: int, rate: float = 150.0) -> Tally:
        """Let people write for some seconds."""
        people = self.people(seed=seed, rate=rate)
        people.start()
        elapse(seconds)
        return people.stop()

    @contextmanager
    def stores(self) -> Iterator[list[Store]]:
        """Yield a reader for each sink."""
        with ExitStack() as closing:
            found = open_stores(self.context, self.running.endpoints, source=self.name, sinks=self.sinks)
            for store in found:
                closing.callback(store.close)
            yield found

    def compare(self) -> list[Comparison]:
        """Compare every row now; what is on its way counts as missing."""
        with self.stores() as stores:
            return compare_all(self.dsn, stores, TABLES)

    def is_equal(self) -> bool:
        """Return whether every row is equal in every sink; False while a store cannot be read."""
        try:
            return all(comparison.equal for comparison in self.compare())
        except Exception:  # noqa: BLE001 - whatever a store says that is just being restored
            return False

    def until_equal(self, timeout: float = 240.0) -> None:
        """Wait until every row is equal in every sink, whatever `lag` says; fail with what it says then.

        A store that was restored may have all of the shop's history applied to it again.
        """
        until(self.is_equal, timeout, why=self._differing)

    def _differing(self) -> str:
        told = behind(measure(self.context))
        return "\n".join([str(one.as_dict()) for one in self.compare() if not one.equal] + [told])

    def drain(self, timeout: float = 120.0) -> None:
        """Wait until it is proven that every sink shows what was committed until now."""
        settle(self.context, timeout)

    def converge(self, timeout: float = 120.0) -> None:
        """Wait for lag to fall to zero, then insist on every row being equal in every sink."""
        self.drain(timeout)
        differing = [comparison.as_dict() for comparison in self.compare() if not comparison.equal]
        assert not differing, differing


@contextmanager
def open_shop(running: RunningStack, name: str, *, scale: float = 0.05) -> Iterator[Shop]:
    """Yield a shop of its own on a stack, filled and equal in all sinks; remove it at the end."""
    sizes = Sizes().scaled(scale)
    context = open_context(running.home.root)
    sinks = {f"{name}_search": "elasticsearch", f"{name}_cache": "redis", f"{name}_lake": "delta"}
    server = running.endpoints.postgres_dsn
    dsn = shop.create(server, name)
    try:
        shop.seed(dsn, seed=3, sizes=sizes)
        register(context, dsn, running.endpoints, lambda _: None, source=name, sinks=sinks)
        opened = Shop(running, context, name, sinks, dsn, sizes)
        opened.drain(timeout=240.0)
        yield opened
    finally:
        running.stack.up()
        _remove(context, name, sinks)
        shop.drop(server, name)


def _remove(context: Context, name: str, sinks: dict[str, str]) -> None:
    registry = Registry(context.registry)
    for sink in {entry.name for entry in registry.sinks(name)} & sinks.keys():
        control_sink.remove(context, sink, purge=True)
    if name in (entry.name for entry in registry.sources()):
        control_source.remove(context, name)
