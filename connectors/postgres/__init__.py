"""Postgres as a source: checks, catalogue, setup and the connector's properties."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from connectors.base import Capture, Hold, Keys
from connectors.postgres import catalogue, identity, preflight, reread, setup
from connectors.postgres.properties import connector_properties, pattern
from connectors.postgres.session import address, parameters, session
from headrace.model.finding import Finding
from headrace.model.schema import TableId, TableSchema

__all__ = ["PostgresSource"]

_FAILOVER_SLOTS = 170_000


class PostgresSource:
    """A Postgres database, see :class:`connectors.base.Source`.

    Args:
        dsn: libpq URL or key-value string.
        password: Used instead of one in ``dsn``; without either, ``PGPASSWORD`` or ``~/.pgpass`` may have it.
    """

    kind = "postgres"

    def __init__(self, dsn: str, password: str | None = None) -> None:
        self._known = parameters(dsn) | ({} if password is None else {"password": password})

    @property
    def address(self) -> str:
        return address(self._known)

    @property
    def password(self) -> str:
        with session(self._known) as connection:
            return connection.info.password or ""

    def tables(self, schemas: Sequence[str]) -> list[TableId]:
        with session(self._known) as connection:
            return catalogue.list_tables(connection, schemas)

    def preflight(
        self, tables: Sequence[TableId], keys: Keys | None = None, *, partitions: int = 1
    ) -> list[Finding]:
        with session(self._known) as connection:
            told = preflight.check_tables(connection, tables, keys or {}, spread=partitions > 1)
            return [*preflight.check_server(connection), *told]

    def catalogue(self, tables: Sequence[TableId], keys: Keys | None = None) -> list[TableSchema]:
        with session(self._known) as connection:
            return catalogue.read_tables(connection, tables, keys or {})

    def setup(self, capture: Capture) -> None:
        with session(self._known, autocommit=False) as connection:
            setup.create(connection, capture)

    def teardown(self, capture: Capture) -> None:
        with session(self._known) as connection:
            setup.forget(connection, capture)

    def properties(self, capture: Capture) -> dict[str, str]:
        with session(self._known) as connection:
            info = connection.info
            used = {"host": info.host, "port": str(info.port), "user": info.user, "dbname": info.dbname}
            failover_slots = info.server_version >= _FAILOVER_SLOTS
        return connector_properties(capture, {**self._known, **used}, failover_slots=failover_slots)

    def publish(self, capture: Capture) -> None:
        with session(self._known, autocommit=False) as connection:
            setup.publish(connection, capture)

    def hold(self, capture: Capture) -> Hold:
        with session(self._known) as connection:
            held = setup.hold(connection, capture)
            return replace(held, weakened=identity.weakened(connection, capture.tables))

    def request_snapshot(self, capture: Capture, tables: Sequence[TableId], signal: str) -> None:
        reread.refuse_unreadable([schema for schema in capture.tables if schema.table in tables])
        order = {
            "type": "incremental",
            "data-collections": [pattern(table.schema, table.name) for table in tables],
        }
        with session(self._known) as connection:
            setup.insert_signal(connection, capture.signals, signal, "execute-snapshot", json.dumps(order))

    def estimate_rows(self, tables: Sequence[TableId]) -> Mapping[TableId, int]:
        with session(self._known) as connection:
            return catalogue.estimate_rows(connection, tables)

    def select(self, statement: str) -> list[dict[str, object]]:
        with session(self._known) as connection:
            cursor = connection.execute(statement.encode())
            return list(cursor.fetchall()) if cursor.description else []
