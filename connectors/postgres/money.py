"""What one unit of ``money`` is to the application: Postgres keeps amounts as whole numbers of it.

How many of them are one dollar, or yen, is said by ``lc_monetary`` of the session that writes. The
connector's sessions, and ours, read hundredths; an amount that was kept in yen would arrive as a hundredth.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from connectors.postgres.advice import briefly
from connectors.postgres.granted import rows_if_granted
from connectors.postgres.session import Session, quoted, rows
from connectors.watch import Trouble
from headrace.model.finding import Finding
from headrace.model.schema import TableId, TableSchema

__all__ = ["Amounts", "check_money", "misread_now", "read_amounts"]

_READ = 100
"""So many units our sessions take for one."""
_COLUMNS = """
WITH RECURSIVE resolved AS (
    SELECT a.attnum, a.attname, a.atttypid AS type
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
  UNION ALL
    SELECT r.attnum, r.attname, t.typbasetype FROM resolved r JOIN pg_type t ON t.oid = r.type
    WHERE t.typtype = 'd'
)
SELECT attname::text AS name FROM resolved WHERE type = 'money'::regtype ORDER BY attnum
"""
_SET = """
SELECT r.rolname::text AS role, s.setdatabase <> 0 AS here, current_database()::text AS database,
       substr(c, length('lc_monetary=') + 1) AS locale
FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) c LEFT JOIN pg_roles r ON r.oid = s.setrole
WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
  AND starts_with(c, 'lc_monetary=')
ORDER BY here DESC, role
"""
_OWN = """
SELECT s.setting, s.source, current_user::text AS role, current_database()::text AS database,
       has_function_privilege('pg_show_all_file_settings()', 'EXECUTE') AS told
FROM pg_settings s WHERE s.name = 'lc_monetary'
"""
_FILE = """
SELECT setting FROM pg_file_settings WHERE name = 'lc_monetary' AND applied ORDER BY seqno DESC LIMIT 1
"""
_UNITS = "SELECT ('x' || encode(cash_send(1::money), 'hex'))::bit(64)::bigint AS units"
_OF_SERVER = ("default", "environment variable", "configuration file", "command line")
"""Sources of a setting that are the server's, and everybody's."""


@dataclass(frozen=True, slots=True)
class _Wrong:
    """Sessions that keep amounts in another unit than ours read.

    Args:
        whose: Who they are, for people.
        locale: Theirs; None where nobody can say.
        units: How many they take for one; None where nobody can say.
        mends: What gives them the unit that is read, as SQL; empty where they are all that write.
    """

    whose: str
    locale: str | None
    units: int | None
    mends: str = ""


@dataclass(frozen=True, slots=True)
class Amounts:
    """How the sessions of the application keep amounts of money.

    Args:
        wrong: Those that do so otherwise than they are read; empty when all is well.
    """

    wrong: tuple[_Wrong, ...]

    def why(self, columns: Sequence[str]) -> str:
        """Return what is wrong with columns of money; only while something is."""
        first, named = self.wrong[0], ", ".join(columns)
        if first.units is None:
            return f"column {named}: {first.whose}, which hides how the application keeps amounts of money"
        return (
            f"column {named}: under lc_monetary = {first.locale}, that of {first.whose}, an amount of 1 is"
            f" kept as {first.units}, which is delivered as {first.units / _READ:g}"
        )

    def mend(self, table: TableId, columns: Sequence[str]) -> str:
        """Return the statements after which nothing is wrong, for one session; only while something is."""
        first = self.wrong[0]
        if first.mends or first.locale is None or first.units is None:
            return first.mends
        digits = len(str(first.units)) - 1
        altered = ", ".join(f"ALTER {quoted(name)} TYPE numeric(19, {digits})" for name in columns)
        locale = sql.Literal(first.locale).as_string()
        rewritten = briefly(f"ALTER TABLE {table.quoted} {altered};", does="rewrites the table")
        return f"SET lc_monetary = {locale}; {rewritten}"


def read_amounts(connection: Session) -> Amounts:
    """Return how the application's sessions keep money, whichever role they are of.

    Args:
        connection: To the database; each statement a transaction of its own.
    """
    found = rows_if_granted(connection, _SET)
    if found is None:  # of which the check warns
        return Amounts(())
    everybody = next((row for row in found if row["role"] is None), None)
    wrong: list[_Wrong] = []
    if everybody is None:
        wrong += _of_server(connection)
    elif (units := _units(connection, everybody["locale"])) not in (None, _READ):
        whose = f"database {everybody['database']}" if everybody["here"] else "all roles"
        wrong.append(_Wrong(whose, everybody["locale"], units))
    for row in found:
        if row["role"] is not None and (units := _units(connection, row["locale"])) not in (None, _READ):
            mends = _reset(row["role"], row["database"] if row["here"] else None)
            wrong.append(_Wrong(f"role {row['role']}", row["locale"], units, mends))
    return Amounts(tuple(wrong))


def _of_server(connection: Session) -> Iterator[_Wrong]:
    """Yield what is wrong where no database, and not all roles, have a setting."""
    with connection.transaction():
        connection.execute("SET LOCAL lc_monetary TO DEFAULT")
        told = rows_if_granted(connection, _OWN)
    if not told:
        return
    (own,) = told
    locale = own["setting"]
    if own["source"] not in _OF_SERVER:
        file = rows(connection, _FILE) if own["told"] else None
        if file is None:
            if own["source"] == "client":
                yield _Wrong("the address sets lc_monetary", None, None)
            else:
                here = own["database"] if own["source"] == "database user" else None
                mends = _reset(own["role"], here)
                yield _Wrong(f"our role {own['role']} has an lc_monetary of its own", None, None, mends)
            return
        locale = file[0]["setting"] if file else "C"
    if (units := _units(connection, locale)) not in (None, _READ):
        yield _Wrong("the server", locale, units)


def _units(connection: Session, locale: str) -> int | None:
    """Return as how many units an amount of 1 is kept; None for a locale that the server does not have."""
    try:
        with connection.transaction():
            connection.execute("SELECT set_config('lc_monetary', %s, true)", (locale,))
            (found,) = rows(connection, _UNITS)
    except psycopg.errors.InvalidParameterValue:  # sessions are begun without it
        return None
    return int(found["units"])


def _reset(role: str, database: str | None) -> str:
    inside = f" IN DATABASE {quoted(database)}" if database else ""
    return f"ALTER ROLE {quoted(role)}{inside} RESET lc_monetary;"


def check_money(
    connection: Session, table: TableId, left: Collection[str], amounts: Amounts
) -> Iterator[Finding]:
    """Yield an error when columns that are captured hold money that is read otherwise than it is kept.

    Args:
        connection: To the database.
        table: Which table.
        left: Columns that are not captured.
        amounts: How money is kept.
    """
    if not amounts.wrong:
        return
    names = [row["name"] for row in rows(connection, _COLUMNS, table.schema, table.name)]
    if captured := [name for name in names if name not in left]:
        said = f"{table}: {amounts.why(captured)}."
        yield Finding.error("SOURCE_MONEY", said, amounts.mend(table, captured))


def misread_now(schema: TableSchema, amounts: Amounts) -> Iterator[Trouble]:
    """Yield when a captured table has money that is kept otherwise than it was when it was registered."""
    names = [column.name for column in schema.told if column.base == "money"]
    if names and amounts.wrong:
        said, mend = amounts.why(names), amounts.mend(schema.table, names)
        yield Trouble(schema.table, "MONEY_MISREAD", True, said, mend, lasts=True)
