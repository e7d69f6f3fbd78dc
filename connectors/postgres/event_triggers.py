"""Event triggers of others that refuse our statements: found by trying, in a transaction taken back."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress

import psycopg
from psycopg import sql

from connectors.postgres.session import Session, quoted, rows, told_by
from headrace.model.finding import Finding, Severity

__all__ = ["check_event_triggers"]

_TRIGGERS = """
SELECT e.evtname::text AS name, e.evtowner::regrole::text AS owner, e.evtevent::text AS event,
       e.evtfoid::regproc::text AS function, current_user::text AS role
FROM pg_event_trigger e WHERE e.evtenabled IN ('O', 'A') AND e.evtevent <> 'login' ORDER BY e.evtname
"""


class _TakenBack(Exception):
    """Ends the trial."""


def check_event_triggers(connection: Session) -> Iterator[Finding]:
    """Yield what an event trigger has against what `source add` and `source remove` do.

    Nothing is tried where there is no such trigger, and nothing that is tried stays.

    Args:
        connection: To the database; each statement a transaction of its own.
    """
    triggers = rows(connection, _TRIGGERS)
    if not triggers:
        return
    name = sql.Identifier(f"headrace_check_{secrets.token_hex(4)}")
    made = (
        sql.SQL("CREATE SCHEMA IF NOT EXISTS headrace"),
        sql.SQL("CREATE TABLE headrace.{} (id smallint PRIMARY KEY)").format(name),
        sql.SQL("CREATE PUBLICATION {} FOR TABLE headrace.{}").format(name, name),
    )
    gone = (
        sql.SQL("DROP PUBLICATION {}").format(name),
        sql.SQL("DROP TABLE headrace.{}").format(name),
    )
    named = ", ".join(f"{one['name']} (on {one['event']}, runs {one['function']})" for one in triggers)
    role = triggers[0]["role"]
    disable = " ".join(f"ALTER EVENT TRIGGER {quoted(one['name'])} DISABLE;" for one in triggers)
    hint = f"{disable}  -- as {triggers[0]['owner']}; or give {role} the rights that the function needs"
    with suppress(_TakenBack), connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '1s'")
        for statements, severity, what in (
            (made, Severity.ERROR, "what is made in the database"),
            (gone, Severity.WARNING, "that it is removed again, so `source remove` will leave it there"),
        ):
            try:
                with connection.transaction():
                    for statement in statements:
                        connection.execute(statement)
            except psycopg.Error as error:
                message = f"An event trigger refuses {what}: {told_by(error)}. There is {named}."
                yield Finding(severity, "SOURCE_EVENT_TRIGGER", message, hint)
                break
        raise _TakenBack
