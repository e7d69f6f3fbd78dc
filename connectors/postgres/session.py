"""One short connection per question; every refusal becomes a sentence without a password."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.rows import DictRow, dict_row

from connectors.postgres.granted import refused_for
from connectors.postgres.pooler import marked, refuse_pooled, refused_by_pooler
from connectors.postgres.refusal import code_of_refusal
from connectors.postgres.refusers import disabling, event_triggers, refused_by, suspecting
from connectors.postgres.way_in import CREDENTIALS, way_in
from headrace.config.secrets import mask_text
from headrace.model.errors import LoginRefused, SourceError
from headrace.model.schema import TableId

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = [
    "BY_INDEX",
    "IN_UTF8",
    "Session",
    "connect",
    "define",
    "identifier",
    "quoted",
    "rows",
    "rows_within",
    "session",
    "told_by",
]

Session = psycopg.Connection[DictRow]
_TIMEOUT_S = 10
_PATIENCE: Mapping[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""A database that goes without a word is given up after half a minute, not after the system's hours."""
_OURS = "SET search_path = pg_catalog, pg_temp"
"""Who may make functions in a schema of the path could make ours call theirs, as our role."""
_OURS_AGAIN = "SET LOCAL search_path = pg_catalog, pg_temp"
_THEIRS = 'SET LOCAL search_path = "$user", public'
_OLDEST = 140_000
"""The first version of Postgres that knows all that we ask of its catalogue."""
_SET = """
SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS wanted(name, value)
WHERE current_setting(name, true) IS NOT NULL
"""
"""A version takes those settings that it knows."""
_ALWAYS: Mapping[str, str] = {
    "role": "none",
    "statement_timeout": "0",
    "transaction_timeout": "0",
    "exit_on_error": "off",  # a refusal is an answer, after which the same session is asked on
}
BY_INDEX: Mapping[str, str] = {"enable_hashjoin": "off", "enable_mergejoin": "off"}
"""Has Postgres find each row of the catalogue by its index.

By the statistics of a catalogue that has just grown it would join all of it anew for each table: a look at
900 tables and 4,000 partitions took 18 s, and takes 0.6 s this way.
"""
_SETTINGS: Mapping[str, str] = {
    **BY_INDEX, "IntervalStyle": "postgres", "DateStyle": "ISO, MDY", "bytea_output": "hex",
    "extra_float_digits": "1", "lc_monetary": "C", "quote_all_identifiers": "off",
    "default_transaction_read_only": "off", "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0", "idle_session_timeout": "0",
    "standard_conforming_strings": "on", "default_tablespace": "",
    "default_table_access_method": "heap", "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off", "tcp_user_timeout": "0",
}  # fmt: skip
"""What role, database and server say is not heeded."""
IN_UTF8 = "Make a database in UTF8 from its dump: createdb --encoding=UTF8 --template=template0."
"""What helps a database whose bytes have no meaning."""


def connect(
    known: Mapping[str, str],
    *,
    name: str = "headrace",
    settings: Mapping[str, str] = MappingProxyType({}),
    autocommit: bool = True,
    at_most_s: int | None = None,
) -> Session:
    """Open a connection that is given up when the database goes without a word; it calls Postgres' functions.

    It has the rights of the role that connects, whatever role and database say it is to become
    (``ALTER ROLE … SET role``): a slot is that role's affair in any case.

    Args:
        known: Connection parameters.
        name: What the database's list of sessions shows.
        settings: Of the session. They are set once we are in, when an event trigger on login has had its say.
        autocommit: Each statement is a transaction.
        at_most_s: How long the database may take to let us in, whatever the parameters allow.

    Raises:
        psycopg.OperationalError: When the database does not let us in.
        SourceError: When a connection pooler answers (``SOURCE_POOLED``); then nothing is set anywhere. When
            our role may not set something (``SOURCE_CATALOGUE_RIGHT``).
    """
    parameters: dict[str, Any] = {
        "connect_timeout": _TIMEOUT_S,
        "application_name": name,
        "client_encoding": "UTF8",  # else names of a database in SQL_ASCII are bytes
        "options": os.environ.get("PGOPTIONS", ""),
        **_PATIENCE,
        **known,
    }
    if at_most_s is not None:
        parameters["connect_timeout"] = _shorter(str(parameters["connect_timeout"]), at_most_s)
    try:
        connection = _let_in(known, parameters)
        if "replication" not in parameters:
            _begin(connection, {**_ALWAYS, **settings})
    except psycopg.errors.InsufficientPrivilege as error:
        if refused := refused_for(known, error):
            raise refused from error
        raise
    connection.autocommit = autocommit
    return connection


def _let_in(known: Mapping[str, str], parameters: Mapping[str, Any]) -> Session:
    """Open a connection in which every statement is a transaction, and no setting ends the first of them."""
    told, mark = marked(f"{parameters['options']} -c statement_timeout=0".strip())
    try:
        connection = psycopg.connect(**{**parameters, "options": told}, autocommit=True, row_factory=dict_row)
    except psycopg.OperationalError as error:
        refused_by_pooler(error, known, parameters)
        raise
    if "replication" not in parameters:
        refuse_pooled(connection, mark, known)
    return connection


def _begin(connection: Session, settings: Mapping[str, str]) -> None:
    """Set what the session is to have; it is closed when it cannot be set."""
    try:
        connection.execute(_OURS)
        connection.execute(_SET, (list(settings), list(settings.values())))
    except BaseException:
        connection.close()
        raise


@contextmanager
def session(
    known: Mapping[str, str], *, autocommit: bool = True, whose: str = "SOURCE", makes: bool = False
) -> Iterator[Session]:
    """Open a connection; without ``autocommit`` everything inside is one transaction.

    Args:
        known: Connection parameters.
        autocommit: Each statement is a transaction.
        whose: The source's name, for hints; ``URL`` while there is none, empty where a check asks itself.
        makes: Whether what is ours is made inside: event triggers may change it before we fill it.

    Raises:
        SourceError: When the database does not answer (``SOURCE_UNREACHABLE``), a connection pooler answers
            (``SOURCE_POOLED``), it is too old (``SOURCE_VERSION``), has texts that are no characters
            (``SOURCE_ENCODING``), or refuses a statement (``SOURCE_CATALOGUE_RIGHT``, ``SOURCE_DENIED``,
            ``SOURCE_REFUSED``), or an operator, or our watcher, has ended the session (``SOURCE_GAVE_WAY``).
    """
    try:
        connection = connect(known, settings=_SETTINGS, autocommit=autocommit)
    except psycopg.OperationalError as error:
        silent = isinstance(error, psycopg.errors.ConnectionTimeout)
        code = str if silent else partial(code_of_refusal, known)
        hint = way_in(str(error), known.get("user"), known.get("dbname"), code)
        made = LoginRefused if hint == CREDENTIALS else SourceError
        raise made(
            f"The database does not let us in: {told_by(error)}", code="SOURCE_UNREACHABLE", hint=hint
        ) from error
    try:
        with closing(connection), connection:  # a commit that is refused leaves it open
            _refuse_old(connection)
            yield connection
    except psycopg.errors.InsufficientPrivilege as error:
        raise (refused_for(known, error) or _denied(known, error, whose, makes)) from error
    except psycopg.errors.AdminShutdown as error:
        raise SourceError(
            "The session was ended, perhaps because others waited for it.",
            code="SOURCE_GAVE_WAY",
            hint="Run the same command again.",
        ) from error
    except psycopg.errors.CharacterNotInRepertoire as error:
        raise SourceError(
            f"The database has texts whose bytes are no characters: {told_by(error)}.",
            code="SOURCE_ENCODING",
            hint=IN_UTF8,
        ) from error
    except psycopg.Error as error:
        raise SourceError(
            f"The database refuses: {told_by(error)}",
            code="SOURCE_REFUSED",
            hint="".join(_against_triggers(known, error, makes)),
        ) from error


def _denied(known: Mapping[str, str], error: psycopg.Error, whose: str, makes: bool) -> SourceError:
    refuses, suspected = _against_triggers(known, error, makes)
    hint = (
        refuses
        or (whose and f"Run `headrace source check {whose}` for the GRANT statements that are missing.")
        or "Grant the role what is named there; the server's log has the whole statement."
    )
    if suspected:
        hint += f"\nWhere none is missing: {suspected}"
    return SourceError(f"The database denies it: {told_by(error)}", code="SOURCE_DENIED", hint=hint)


def _against_triggers(known: Mapping[str, str], error: psycopg.Error, makes: bool) -> tuple[str, str]:
    """Return what helps when a statement was refused by an event trigger's function, and when it may be.

    Only one of them says something. Of what is made a trigger may have made something else, which an error
    does not tell; a lack of room or the like is never by that.
    """
    may_be = makes and not isinstance(error, psycopg.OperationalError)
    if not (error.diag.context or may_be):
        return "", ""
    try:
        with connect(known) as connection:
            triggers = event_triggers(connection)
    except (psycopg.Error, SourceError):
        return "", ""
    if found := refused_by(triggers, error):
        return disabling(found), ""
    return "", suspecting(triggers) if may_be else ""


def _refuse_old(connection: Session) -> None:
    if connection.info.server_version < _OLDEST:
        raise SourceError(
            f"Postgres {connection.info.parameter_status('server_version')} is too old.",
            code="SOURCE_VERSION",
            hint=f"Use Postgres {_OLDEST // 10_000} or newer.",
        )


def rows(connection: Session, statement: LiteralString | sql.Composed, *values: Any) -> list[DictRow]:
    """Return all rows of one query."""
    return connection.execute(statement, values or None).fetchall()


def rows_within(connection: Session, limit_ms: int, query: sql.Composable) -> list[DictRow]:
    """Return all rows of one query that is given up after so many milliseconds, one at least.

    The limit travels with the query: both are one transaction, and one round trip. Each statement of a
    message has the whole of it.
    """
    told = sql.SQL("SET LOCAL statement_timeout = {}; {}").format(max(1, limit_ms), query)
    cursor = connection.execute(told, prepare=False)
    cursor.nextset()
    return cursor.fetchall()


def define(connection: Session, statement: LiteralString | sql.Composed) -> None:
    """Run a statement that defines something, and calls no function.

    The functions of event triggers, which it may set off, find names as in sessions of the application.
    """
    told = sql.SQL(statement) if isinstance(statement, str) else statement
    around = sql.SQL("{}; {}; {}")
    connection.execute(around.format(sql.SQL(_THEIRS), told, sql.SQL(_OURS_AGAIN)))


def identifier(table: TableId) -> sql.Identifier:
    """Return the table's name for composition into a statement."""
    return sql.Identifier(table.schema, table.name)


def quoted(name: str) -> str:
    """Return the SQL identifier of one name, safe to paste into a statement."""
    return '"' + name.replace('"', '""') + '"'


def _shorter(told: str, seconds: int) -> int:
    """Return the shorter time; none, and less, stands for no end."""
    wanted = int(told) if told.strip().lstrip("-").isdecimal() else 0
    return min(wanted, seconds) if wanted > 0 else seconds


def told_by(error: psycopg.Error) -> str:
    """Return the first line of what the database said, without a password."""
    text = error.diag.message_primary or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return mask_text(lines[0] if lines else type(error).__name__)
