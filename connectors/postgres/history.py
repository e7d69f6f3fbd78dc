"""Where the database's log is, on which timeline, and a mark of ours: whether the database went back.

A restored database may have grown past its former end before anybody looks, on the same timeline. The mark
is a time that only grows, in a row of the heartbeat's table: in a restored database it is an older one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg
from psycopg import sql

from connectors.postgres.session import Session, identifier, rows
from headrace.model.schema import TableId

__all__ = ["LogPosition", "ancestry", "log_position", "renew_mark"]

_POSITION = """
SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint AS flushed,
       ('x' || left(pg_walfile_name(pg_current_wal_flush_lsn()), 8))::bit(32)::int AS timeline
WHERE NOT pg_is_in_recovery()
"""
_MARK = """
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now,
       (SELECT (extract(epoch FROM at) * 1000000)::bigint FROM {} WHERE id = 2) AS mark
"""
_RENEW = """
INSERT INTO {} VALUES (2, timestamptz 'epoch' + %s * interval '1 microsecond')
ON CONFLICT (id) DO UPDATE SET at = excluded.at
"""
_RENEW_EVERY_US = 10_000_000
_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Up to where the log is on disk, which a crash does not undo, and its timeline; None on a standby."""

    flushed: int | None
    timeline: int | None


def log_position(connection: Session) -> LogPosition:
    """Return where the log is now."""
    found = rows(connection, _POSITION)
    return LogPosition(found[0]["flushed"], found[0]["timeline"]) if found else LogPosition(None, None)


def ancestry(known: Mapping[str, str], timeline: int | None) -> dict[int, int] | None:
    """Return earlier timeline → position at which the log left it.

    Empty when the server does not tell; None when it has no session for the question now.
    """
    if timeline is None or timeline < 2:
        return {}
    try:
        connection = psycopg.connect(
            **{"connect_timeout": _TIMEOUT_S, "application_name": "headrace", **known},  # type: ignore[arg-type]
            replication="database",
            autocommit=True,
        )
    except psycopg.Error:
        return None
    with connection:
        try:
            found = connection.execute(f"TIMELINE_HISTORY {timeline:d}".encode()).fetchone()
        except psycopg.Error:
            return None if connection.closed else {}
    content = found[1] if found else b""
    text = content.decode() if isinstance(content, bytes) else str(content)
    parts = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {int(part[0]): _number(part[1]) for part in parts if len(part) > 1}


def renew_mark(connection: Session, table: TableId, known: int | None) -> int | None:
    """Return our mark in the database, microseconds, and leave a later one when it is some seconds old.

    One that is older than the known one is left as it is: until it is noted that the database went back, it
    is the only evidence.

    Args:
        connection: Whose commits are on this server's disk when they return.
        table: The heartbeat's.
        known: The mark that was seen before on this timeline; None when none was.

    Returns:
        None when there is no mark: nobody has left one, or it is not for us to leave one.
    """
    name = identifier(table)
    (there,) = rows(connection, "SELECT to_regclass(%s) IS NOT NULL AS found", name.as_string())
    if not there["found"]:
        return None
    (seen,) = rows(connection, sql.SQL(_MARK).format(name))
    mark: int | None = seen["mark"]
    back = known is not None and (mark or 0) < known
    if not back and (mark is None or seen["now"] - mark >= _RENEW_EVERY_US):
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
            connection.execute(sql.SQL(_RENEW).format(name), (max(seen["now"], (mark or 0) + 1),))
    return mark


def _number(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)
