"""Event triggers of others that refuse our statements: found by trying, in a transaction taken back."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress

import psycopg
from psycopg import sql

from connectors.postgres import specimens
from connectors.postgres.refusers import disabling, event_triggers, refused_by
from connectors.postgres.session import Session, define, rows, told_by
from headrace.model.finding import Finding, Severity

__all__ = ["check_event_triggers"]

_SCHEMA = sql.Identifier("headrace")


class _TakenBack(Exception):
    """Ends the trial."""


def check_event_triggers(connection: Session, *, anew: bool = False) -> Iterator[Finding]:
    """Yield what an event trigger has against what we do to a database, now or later.

    Nothing is tried where there is no such trigger, and nothing that is tried stays.

    Args:
        connection: To the database; each statement a transaction of its own.
        anew: Whether what is ours is to be removed before it is made, so that what refuses that is an error.
    """
    triggers = event_triggers(connection)
    if not triggers:
        return
    named = ", ".join(f"{one['name']} (on {one['event']}, runs {one['function']})" for one in triggers)
    there = rows(connection, "SELECT 1 FROM pg_namespace WHERE nspname = 'headrace'")
    trials = _trials(ours=not there, gone=Severity.ERROR if anew else Severity.WARNING)
    with suppress(_TakenBack), connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '1s'")
        for severity, what, statements in trials:
            try:
                with connection.transaction():
                    for statement in statements:
                        define(connection, statement)
            except psycopg.Error as error:
                message = f"An event trigger refuses {what}: {told_by(error)}. There is {named}."
                hint = disabling(refused_by(triggers, error) or triggers)
                yield Finding(severity, "SOURCE_EVENT_TRIGGER", message, hint)
                if severity is Severity.ERROR:
                    break  # what is not made cannot be altered
        raise _TakenBack


def _trials(*, ours: bool, gone: Severity) -> Sequence[tuple[Severity, str, Sequence[sql.Composed]]]:
    """Return each kind of statement of :mod:`connectors.postgres.setup`, of the publication and of the watch.

    Args:
        ours: Whether the schema is made by the trial itself, which may drop it, then.
        gone: How much it matters that it cannot be removed.
    """
    trial = f"headrace_check_{secrets.token_hex(4)}"
    name, table = sql.Identifier(trial), sql.Identifier("headrace", trial)
    dropped = _SCHEMA if ours else name
    made = (
        sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(_SCHEMA),
        sql.SQL("CREATE TABLE {} (id smallint PRIMARY KEY)").format(table),
        sql.SQL("ALTER TABLE {} {}").format(table, sql.SQL(specimens.added())),
        sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(name, table),
    )
    altered = (
        sql.SQL("ALTER PUBLICATION {} SET (publish = 'insert')").format(name),
        sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(name, table),
        sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(name, table),
    )
    dropping = (
        sql.SQL("DROP PUBLICATION {}").format(name),
        sql.SQL("DROP TABLE {}").format(table),
        sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(dropped),
        sql.SQL("DROP SCHEMA {}").format(dropped),
    )
    return (
        (Severity.ERROR, "what is made in the database", made),
        (
            Severity.WARNING,
            "that the publication is altered, so `source tables` and `source refresh` will be refused",
            altered,
        ),
        (gone, "that it is removed again, so `source remove` will leave it there", dropping),
    )
