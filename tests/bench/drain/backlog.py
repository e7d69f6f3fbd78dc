"""A backlog: everything a workload committed lies in Kafka, and nothing has been applied anywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial

import psycopg

from headrace.config.source import SourceSettings
from headrace.control import source as control_source
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceTableEntry
from headrace.demo.compare import Comparison, Expected, compare
from headrace.demo.original import Original
from headrace.demo.shop import dsn_of
from headrace.demo.stores.base import Store
from headrace.model.schema import TableSchema
from tests.bench.drain.patience import patiently
from tests.bench.drain.workloads import Workload
from tests.support.stack import RunningStack

__all__ = ["Backlog", "backlog"]

_PATIENCE_S = 240.0

Place = tuple[str, int]


@dataclass(frozen=True)
class Backlog:
    """A source whose changes all lie in Kafka.

    Attributes:
        running: The stack.
        context: For the control plane.
        name: Of the source.
        dsn: Of its database.
        workload: What was written.
        changes: How many row changes that was.
        ends: Topic and partition → the offset after the last record.
        tables: What is captured, as registered.
        captured_s: How long Debezium took from the last commit on, seconds.
    """

    running: RunningStack
    context: Context
    name: str
    dsn: str
    workload: Workload
    changes: int
    ends: Mapping[Place, int]
    tables: tuple[SourceTableEntry, ...]
    captured_s: float = field(default=0.0)

    @cached_property
    def expected(self) -> list[tuple[TableSchema, Expected]]:
        """What Postgres holds; read once, for nothing is written any more."""
        with Original.open(self.dsn) as original:
            return [(schema, Expected(schema, original.rows(schema))) for schema in original.tables()]

    def differences(self, store: Store) -> list[Comparison]:
        """Return how a store differs from Postgres by content, in both directions; nothing if it is equal."""

        def compared(schema: TableSchema, expected: Expected) -> Comparison:
            return compare(store.name, expected, store.rows(schema), partial(store.address, schema))

        found = [patiently(partial(compared, *table)) for table in self.expected]
        return [comparison for comparison in found if not comparison.equal]


@contextmanager
def backlog(
    running: RunningStack, context: Context, workload: Workload, *, partitions: int = 1
) -> Iterator[Backlog]:
    """Yield the backlog of a workload in a database of its own; remove source and database at the end."""
    name = f"b_{workload.name}"
    server = running.endpoints.postgres_dsn
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    dsn = dsn_of(server, name)
    with psycopg.connect(dsn) as connection:
        connection.execute(workload.ddl)
    control_source.add(context, name, dsn, settings=SourceSettings(partitions=partitions))
    try:
        with psycopg.connect(dsn) as connection:
            changes = workload.write(connection)
        began = time.monotonic()
        _wait_captured(dsn)
        tables = tuple(Registry(context.registry).source(name).tables)
        ends = Kafka(context.kafka_bootstrap).ends([table.topic for table in tables])
        yield Backlog(
            running,
            context,
            name,
            dsn,
            workload,
            changes,
            {place: end for place, (_, end) in ends.items()},
            tables,
            round(time.monotonic() - began, 2),
        )
    finally:
        control_source.remove(context, name)
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _wait_captured(dsn: str) -> None:
    """Return when the connector has confirmed everything committed until now, which Kafka then holds."""
    deadline = time.monotonic() + _PATIENCE_S
    with closing(psycopg.connect(dsn, autocommit=True)) as connection:
        row = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
        assert row is not None
        while True:
            seen = connection.execute(
                "SELECT bool_and(confirmed_flush_lsn >= %s::pg_lsn) FROM pg_replication_slots"
                " WHERE database = current_database()",
                (row[0],),
            ).fetchone()
            if seen is not None and seen[0]:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"Debezium has not read the backlog after {_PATIENCE_S:.0f} s")
            time.sleep(0.1)
