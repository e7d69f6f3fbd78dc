"""The table that is read, captured and decoded: twelve columns, some 250 bytes a row, filled in place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.database import Database, fresh_database

__all__ = ["ABOUT", "TABLE", "captured_rows", "change_all", "filled"]

TABLE = "deeds"
ABOUT = "twelve columns: integers, text, numeric, times, boolean, float, jsonb, uuid, date"

_DDL = f"""
CREATE TABLE {TABLE} (
    id bigint PRIMARY KEY, customer integer, status text, amount numeric(12, 2), created timestamptz,
    local timestamp, note text, flag boolean, share float8, doc jsonb, ref uuid, day date
)
"""

_FILL = f"""
INSERT INTO {TABLE}
SELECT n, n % 5000, (ARRAY['new', 'paid', 'sent', 'done'])[n % 4 + 1], n % 99999 + 0.25,
       '2026-01-01T12:00:00Z'::timestamptz + n * interval '1 second',
       '2026-01-01T12:00:00'::timestamp + n * interval '1 minute',
       'note number ' || n::bigint * 7919 || ' with some more text here', n % 2 = 0, n / 7.0,
       jsonb_build_object('a', n, 'b', to_hex(n * 31), 'tags', jsonb_build_array('x', 'y')),
       md5(n::text)::uuid, '2026-01-01'::date + n % 1000
FROM generate_series(1, {{rows}}) AS n
"""

_TRANSACTION = 1_000


@contextmanager
def filled(server_dsn: str, name: str, rows: int) -> Iterator[Database]:
    """Yield a database of its own that holds the table; remove it at the end."""
    with fresh_database(server_dsn, name) as database:
        database.run(_DDL, _FILL.format(rows=rows), f"ANALYZE {TABLE}")
        yield database


def change_all(database: Database, rows: int) -> int:
    """Change every row once, in transactions of 1,000 rows, and return how many changes that was."""
    loop = f"""
        DO $$ BEGIN
          FOR lowest IN 1..{rows} BY {_TRANSACTION} LOOP
            UPDATE {TABLE} SET customer = customer + 1, amount = amount + 1, note = note || '!'
            WHERE id >= lowest AND id < lowest + {_TRANSACTION};
            COMMIT;
          END LOOP;
        END $$
    """
    database.run(loop)
    return rows


def captured_rows(database: Database) -> int:
    """Return how many rows the table holds."""
    return int(database.value(f"SELECT count(*) FROM {TABLE}"))
