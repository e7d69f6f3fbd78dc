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

from connectors.doubt import UNREADABLE, can_be_asked
from connectors.postgres.by_key import same, spelled
from connectors.postgres.computed import asked, read
from connectors.postgres.names import MEANINGS, Meaning, meanings
from connectors.postgres.session import Session, connect, identifier
from headrace.model.errors import SourceError
from headrace.model.key import Key
from headrace.model.schema import Column, LogicalType, TableId, TableSchema

__all__ = ["PostgresLookup"]

# Who asks holds up the sink's other tables, and a statement under way those who want to alter its table.
# Rows that row security hides would be taken for rows that are gone; so reading them fails.
_SESSION = {
    "statement_timeout": "3s",
    "lock_timeout": "200ms",
    "row_security": "off",
    "default_transaction_read_only": "on",
    "idle_session_timeout": "0",
    "extra_float_digits": "1",
    "DateStyle": "ISO",
    "TimeZone": "UTC",
    "lc_monetary": "C",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
}
_CONNECT_S = 2
_SILENT_S = 4.0
"""Longer than a statement may take: by then the server would have said that it has given up."""
_NOT_AGAIN_S = 2.0
"""So long the database is not asked when it has not let us in: a batch's next table need not wait as well."""
_AT_ONCE = 200
"""So few that also a disk that has to seek for each row can answer in time; fewer after a try that failed."""
_FASTER_AFTER_S = 60.0
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


class _Pace:
    """How many rows of a table are asked for at once: fewer for a while after too many for the time."""

    def __init__(self) -> None:
        self._known: dict[TableId, tuple[int, float]] = {}

    def most(self, table: TableId) -> int:
        """Return for how many rows the next statement may ask."""
        most, until = self._known.get(table, (_AT_ONCE, 0.0))
        if most < _AT_ONCE and time.monotonic() > until:
            most = min(_AT_ONCE, 2 * most)
            self._known[table] = most, time.monotonic() + _FASTER_AFTER_S
        return most

    def slower(self, table: TableId, rows: int) -> None:
        """Note that so many rows did not come in time."""
        self._known[table] = max(1, rows // 2), time.monotonic() + _FASTER_AFTER_S


class PostgresLookup:
    """See :meth:`connectors.base.Source.lookup`; may be called by several threads."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = known
        self._connection: Session | None = None
        self._not_before = float("-inf")
        self._pace = _Pace()
        self._meanings: dict[str, Meaning] = {}
        self._lock = threading.Lock()

    def __call__(
        self, schema: TableSchema, keys: Sequence[Key], columns: Sequence[str], seen: Collection[int]
    ) -> dict[Key, dict[str, Any]]:
        found: dict[Key, dict[str, Any]] = {}
        with self._lock:
            try:
                connection = self._open()
                _refuse_unseen(connection, schema, seen)
                self._learn(connection, schema)
                told = 0
                while told < len(keys):
                    part = keys[told : told + self._pace.most(schema.table)]
                    try:
                        found |= _told(connection, schema, part, columns, self._meanings)
                    except psycopg.OperationalError:  # a statement that was cancelled or cut off is one
                        self._pace.slower(schema.table, len(part))
                        raise
                    told += len(part)
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
                    self._known, name="headrace-lookup", settings=_SESSION, at_most_s=_CONNECT_S
                )
            except (psycopg.Error, SourceError):
                self._not_before = time.monotonic() + _NOT_AGAIN_S
                raise
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._meanings.clear()

    def _learn(self, connection: Session, schema: TableSchema) -> None:
        """Ask for what the key's types stand for, unless this connection has been told."""
        natives = {column.native for column in schema.key_columns} - self._meanings.keys()
        if natives:
            self._meanings |= meanings(_rows(connection, sql.SQL(MEANINGS), [list(natives)]))


def _rows(connection: Session, statement: bytes | sql.SQL, values: Sequence[Any] = ()) -> list[DictRow]:
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


def _is_logical(column: Column) -> bool:
    """Return whether the column's logical value is asked for."""
    return column.computed or (column.type is LogicalType.DATE and not column.dimensions)


def _value(column: Column, version: int) -> sql.Composed:
    name = sql.Identifier("t", column.name)
    if _is_logical(column):
        return asked(column, name)
    if column.type is not LogicalType.INTERVAL:
        return sql.SQL("to_jsonb({}::text[])").format(name)
    if version < _INFINITE_INTERVALS:
        return sql.SQL("{}").format(sql.SQL("NULL::text"))
    return sql.SQL("CASE WHEN NOT isfinite({}) THEN {}::text END").format(name, name)


def _read(column: Column, value: Any) -> Any:
    try:
        return read(column, value) if _is_logical(column) else value
    except (ValueError, TypeError):
        return UNREADABLE


def _told(
    connection: Session,
    schema: TableSchema,
    keys: Sequence[Key],
    columns: Sequence[str],
    known: Mapping[str, Meaning],
) -> dict[Key, dict[str, Any]]:
    """Return what one statement tells of the keys' rows, without columns that the table has lost."""
    asked = [[spelled(column, key.parts[n]) for key in keys] for n, column in enumerate(schema.key_columns)]
    try:
        rows = _rows(connection, _statement(connection, schema, columns, known), asked)
    except psycopg.errors.UndefinedColumn:
        there = _columns(connection, schema)
        if there.issuperset(columns):
            raise
        return _told(connection, schema, keys, [name for name in columns if name in there], known)
    except psycopg.DataError:
        # A label, or a number, of before may be none any more; then no row has that key.
        if not can_be_asked(schema):
            raise
        if len(keys) > 1:
            half = len(keys) // 2
            first = _told(connection, schema, keys[:half], columns, known)
            return first | _told(connection, schema, keys[half:], columns, known)
        if _can_be(connection, schema, asked, known):
            raise
        return {}
    by_name = schema.by_name
    return {
        keys[row["place"] - 1]: {name: _read(by_name[name], row[f"v{n}"]) for n, name in enumerate(columns)}
        for row in rows
    }


def _can_be(
    connection: Session,
    schema: TableSchema,
    asked: Sequence[Sequence[str | None]],
    known: Mapping[str, Meaning],
) -> bool:
    """Return whether a row may have the key."""
    try:
        _rows(connection, _statement(connection, schema, (), known), asked)
    except psycopg.DataError:
        return False
    return True


def _columns(connection: Session, schema: TableSchema) -> set[str]:
    """Return the columns that the table has now."""
    statement = sql.SQL("SELECT * FROM {} LIMIT 0").format(identifier(schema.table))
    return {column.name for column in connection.execute(statement).description or ()}


def _statement(
    connection: Session, schema: TableSchema, columns: Sequence[str], known: Mapping[str, Meaning]
) -> bytes:
    """Return the statement that asks for columns of rows, with their keys' columns as its parameters."""
    version = connection.info.server_version
    names = [sql.Identifier(f"k{n}") for n in range(len(schema.key))]
    values = [
        sql.SQL(", {} AS {}").format(_value(schema.by_name[name], version), sql.Identifier(f"v{n}"))
        for n, name in enumerate(columns)
    ]
    met = [
        same(column, sql.Identifier("t", column.name), sql.SQL("w.{}").format(name), known.get(column.native))
        for column, name in zip(schema.key_columns, names, strict=True)
    ]

    def text(composed: sql.Composable) -> bytes:
        return composed.as_bytes(connection).replace(b"%", b"%%")  # names may hold one

    return b"SELECT w.place%s FROM unnest(%s) WITH ORDINALITY AS w(%s, place) JOIN %s t ON %s" % (
        text(sql.SQL("").join(values)),
        b", ".join([b"%s::text[]"] * len(names)),
        text(sql.SQL(", ").join(names)),
        text(identifier(schema.table)),
        text(sql.SQL(" AND ").join(met)),
    )
