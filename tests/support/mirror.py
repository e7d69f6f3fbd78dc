"""A database of a test's own, mirrored into all three stores, and what they hold of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectors.base import Keys
from headrace.cli.context import open_context
from headrace.config.pipeline import SchemaPolicy
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.opened import open_sink
from headrace.control.progress import read_progress
from headrace.control.registry import Registry
from headrace.model.schema import TableSchema
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack
from tests.support.waiting import letters, settle, until

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = ["KINDS", "Mirror", "mirrored", "store_settings"]

KINDS = {"search": "elasticsearch", "cache": "redis", "lake": "delta"}
_LENIENT: Mapping[str, SchemaPolicy] = {}
_AS_EVER: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Mirror:
    """A source and three sinks.

    Attributes:
        context: For the control plane.
        stack: The servers.
        database: The source's database.
        name: Of the source, and before those of the sinks.
    """

    context: Context
    stack: RunningStack
    database: Database
    name: str

    @property
    def in_sync(self) -> bool:
        """Whether lag says so."""
        return lag.measure(self.context).in_sync

    def settle(self) -> None:
        """Wait until it is proven that every sink shows what was committed until now."""
        settle(self.context)

    def pause(self, *shorts: str) -> None:
        """Pause the sinks whose names end so; return when they rest."""
        for short in shorts:
            sink.pause(self.context, f"{self.name}{short}")

        def rests(short: str) -> bool:
            progress = read_progress(self.context.progress, f"{self.name}{short}")
            return progress is not None and progress.state == "paused"

        until(lambda: all(map(rests, shorts)))

    def resume(self, *shorts: str) -> None:
        """Let the sinks whose names end so go on."""
        for short in shorts:
            sink.resume(self.context, f"{self.name}{short}")

    @property
    def letters(self) -> list[str]:
        """What waits in the dead letter queue, and why."""
        return letters(self.context)

    def schema(self, table: str) -> TableSchema:
        """Return a table as it is registered."""
        tables = Registry(self.context.registry).source(self.name).tables
        return next(known.schema for known in tables if known.schema.table.name == table)

    def stored(self, table: str, *, but: str = "") -> dict[str, dict[str, dict[str, Any]]]:
        """Return sink → row → column → logical value, of every sink ``but`` one."""
        schema = self.schema(table)
        found = {}
        for entry in Registry(self.context.registry).sinks(self.name):
            if entry.name == but:
                continue
            with closing(open_sink(entry)) as opened:
                found[entry.name] = {stored.key: dict(stored.row) for stored in opened.scan(schema)}
        return found


def store_settings(stack: RunningStack, name: str) -> dict[str, dict[str, str]]:
    """Return kind of sink → where a mirror of that name puts its rows."""
    at = stack.endpoints
    return {
        "elasticsearch": {"url": at.elasticsearch_url},
        "redis": {"url": at.redis_url},
        "delta": {"path": str(at.lake_path / name)},
    }


@contextmanager
def mirrored(
    stack: RunningStack,
    name: str,
    *statements: str,
    schemas: Sequence[str] = ("public",),
    policies: Mapping[str, SchemaPolicy] = _LENIENT,
    keys: Keys | None = None,
    partitions: int = 1,
    settings: Mapping[str, Any] = _AS_EVER,
    options: LiteralString = "",
) -> Iterator[Mirror]:
    """Yield a database made by ``statements`` whose tables are being loaded into three sinks.

    ``policies`` says what these do when columns change, by the ends of their names; of ``partitions`` is each
    table's topic, ``settings`` are further ones of the source, and ``options`` those of the database.
    """
    context, stores = open_context(stack.home.root), store_settings(stack, name)
    with fresh_database(stack.endpoints.postgres_dsn, name, options) as database:
        database.run(*statements)
        given = SourceSettings(**{"heartbeat_ms": 300, "partitions": partitions, **settings})
        source.add(context, name, database.dsn, schemas=schemas, keys=keys, settings=given, wait=False)

        def add(short: str, kind: str) -> None:
            policy = policies.get(short, SchemaPolicy.LENIENT)
            told: dict[str, Any] = {"settings": stores[kind], "source": name, "on_schema_change": policy}
            sink.add(context, f"{name}{short}", kind, wait=False, **told)

        with ThreadPoolExecutor(len(KINDS)) as pool:
            for job in [pool.submit(add, short, kind) for short, kind in KINDS.items()]:
                job.result()
        try:
            yield Mirror(context, stack, database, name)
        finally:  # what a failed test leaves would make others fail
            registry = Registry(context.registry)
            for entry in registry.sinks(name):
                sink.remove(context, entry.name, purge=True)
            if name in [entry.name for entry in registry.sources()]:
                source.remove(context, name)
