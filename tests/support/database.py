"""A database of its own on the stack's Postgres, for tests that create and break things."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = ["Database", "fresh_database", "statements"]

_STATEMENT = re.compile(
    r"""(?: "(?:[^"]|"")*" | '(?:[^']|'')*' | /\*.*?\*/ | --[^\n]* | [^;"'/-] | [/-] )+""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Database:
    """One database.

    Attributes:
        dsn: Its URL, password included.
    """

    dsn: str

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each in its own transaction; return the rows of the last one."""
        with psycopg.connect(self.dsn, autocommit=True, client_encoding="UTF8") as connection:
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
            return rows

    def paste(self, text: str) -> None:
        """Send the statements of a text one by one, as psql's prompt does; each its own transaction."""
        self.run(*statements(text))

    def value(self, statement: str) -> Any:
        """Return the one value a query gives."""
        return self.run(statement)[0][0]


def statements(text: str) -> list[str]:
    """Return the statements of a text, as psql's prompt tells them apart."""
    return list(filter(str.strip, _STATEMENT.findall(text)))


@contextmanager
def fresh_database(server_dsn: str, name: str, options: LiteralString = "") -> Iterator[Database]:
    """Yield a new empty database, made with ``options``; drop it, with slots that were left, at the end."""
    parts = urlsplit(server_dsn)
    identifier = sql.Identifier(name)
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier)
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(drop)
        server.execute(sql.SQL("CREATE DATABASE {} {}").format(identifier, sql.SQL(options)))
    try:
        yield Database(urlunsplit(parts._replace(path=f"/{quote(name, safe='')}")))
    finally:
        # Another connection, for a test may have killed the server.
        with psycopg.connect(server_dsn, autocommit=True) as server:
            slots = "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = %s"
            for slot, holder in server.execute(slots, (name,)).fetchall():
                if holder is not None:
                    server.execute("SELECT pg_terminate_backend(%s, 5000)", (holder,))
                with contextlib.suppress(psycopg.Error):
                    server.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
            server.execute(drop)
