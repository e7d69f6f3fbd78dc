"""Values of single rows, read by key on a connection that is kept."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

from connectors.postgres.by_key import same, spelled
from connectors.postgres.computed import asked, read
from connectors.postgres.session import Session, connect, identifier
from headrace.model.errors import SourceError
from headrace.model.key import Key
from headrace.model.schema import Column, LogicalType, TableSchema

__all__ = ["PostgresLookup"]

# Who asks holds up the sink's other tables, and a statement under way those who want to alter its table.
# Rows that row security hides would be taken for rows that are gone; so reading them fails.
_SESSION = (
    "-c statement_timeout=3s -c lock_timeout=200ms -c row_security=off -c default_transaction_read_only=on"
    " -c idle_session_timeout=0 -c extra_float_digits=1 -c DateStyle=ISO -c TimeZone=UTC"
)
_CONNECT_S = 2
_SILENT_S = 4.0
"""Longer than a statement may take: by then the server would have said that it has given up."""
_NOT_AGAIN_S = 2.0
"""So long the database is not asked when it has not let us in: a batch's next table need not wait as well."""
_AT_ONCE = 200
"""So few that also a disk that has to seek for each row can answer in time."""
_SNAPSHOT = sql.SQL(
    "SELECT pg_snapshot_xmax(s)::text::bigint AS next,"
    " ARRAY(SELECT pg_snapshot_xip(s)::text::bigint) AS open FROM pg_current_snapshot() AS s"
)
_XIDS = 1 << 32
"""The log tells the lower half of a transaction's id."""
_SOON = 1 << 24
"""So far ahead an id may be of a transaction that is not visible yet; one further ahead is an old one's."""
_INFINITE_INTERVALS = 170_000
"""The first version of Postgres that has infinite intervals."""


class PostgresLookup:
    """See :meth:`connectors.base.Source.lookup`; may be called by several threads."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = known
        self._connection: Session | None = None
        self._not_before = float("-inf")
        self._lock = threading.Lock()

    def __call__(
        self, schema: TableSchema, keys: Sequence[Key], columns: Sequence[str], seen: Collection[int]
    ) -> dict[Key, dict[str, Any]]:
        found: dict[Key, dict[str, Any]] = {}
        with self._lock:
            try:
                connection = self._open()
                _refuse_unseen(connection, schema, seen)
                wanted = [_value(schema.by_name[name], connection.info.server_version) for name in columns]
                for first in range(0, len(keys), _AT_ONCE):
                    part = keys[first : first + _AT_ONCE]
                    asked = [
                        [spelled(column, key.parts[n]) for key in part]
                        for n, column in enumerate(schema.key_columns)
                    ]
                    for row in _rows(connection, _statement(schema, wanted), asked):
                        values = [_read(schema.by_name[name], row[f"v{n}"]) for n, name in enumerate(columns)]
                        found[part[row["place"] - 1]] = dict(zip(columns, values, strict=True))
            except psycopg.Error as error:
                self._close()
                raise SourceError(
                    f"The database does not tell values of {schema.table}.", code="SOURCE_LOOKUP"
                ) from error
        return found

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            self._close()

    def _open(self) -> Session:
        if self._connection is None or self._connection.closed:
            if time.monotonic() < self._not_before:
                raise psycopg.OperationalError("the database has just not let us in")
            try:
                self._connection = connect(
                    self._known, name="headrace-lookup", options=_SESSION, at_most_s=_CONNECT_S
                )
            except psycopg.Error:
                self._not_before = time.monotonic() + _NOT_AGAIN_S
                raise
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _rows(
    connection: Session, statement: sql.Composed | sql.SQL, values: Sequence[Any] = ()
) -> list[DictRow]:
    """Return the rows of one statement; a server that says nothing at all is given up."""
    cut = threading.Timer(_SILENT_S, _cut, (connection,))
    cut.start()
    try:
        return connection.execute(statement, values or None).fetchall()
    finally:
        cut.cancel()
        cut.join()  # before the connection, or its number, is another's


def _cut(connection: Session) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def _refuse_unseen(connection: Session, schema: TableSchema, seen: Collection[int]) -> None:
    """Refuse to look while a transaction that the log has told of is not visible: it waits for a standby."""
    if not seen:
        return
    (row,) = _rows(connection, _SNAPSHOT)
    still = {number % _XIDS for number in row["open"]}
    for number in seen:
        if number in still or (number - row["next"]) % _XIDS < _SOON:
            raise SourceError(
                f"A change of {schema.table} is in the log, and cannot be seen in the table yet.",
                code="SOURCE_LOOKUP",
            )


def _value(column: Column, version: int) -> sql.Composed:
    name = sql.Identifier("t", column.name)
    if column.computed:
        return asked(column, name)
    if column.type is not LogicalType.INTERVAL:
        return sql.SQL("to_jsonb({}::text[])").format(name)
    if version < _INFINITE_INTERVALS:
        return sql.SQL("{}").format(sql.SQL("NULL::text"))
    return sql.SQL("CASE WHEN NOT isfinite({}) THEN {}::text END").format(name, name)


def _read(column: Column, value: Any) -> Any:
    return read(column, value) if column.computed else value


def _statement(schema: TableSchema, wanted: Sequence[sql.Composed]) -> sql.Composed:
    names = [sql.Identifier(f"k{n}") for n in range(len(schema.key))]
    values = [sql.SQL("{} AS {}").format(value, sql.Identifier(f"v{n}")) for n, value in enumerate(wanted)]
    met = [
        same(column, sql.Identifier("t", column.name), sql.SQL("w.{}").format(name))
        for column, name in zip(schema.key_columns, names, strict=True)
    ]
    return sql.SQL(
        "SELECT w.place, {} FROM unnest({}) WITH ORDINALITY AS w({}, place) JOIN {} t ON {}"
    ).format(
        sql.SQL(", ").join(values),
        sql.SQL(", ").join([sql.SQL("%s::text[]")] * len(names)),
        sql.SQL(", ").join(names),
        identifier(schema.table),
        sql.SQL(" AND ").join(met),
    )
