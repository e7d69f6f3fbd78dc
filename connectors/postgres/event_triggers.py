"""Event triggers of others that refuse our statements: found by trying, in a transaction taken back."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

from connectors.base import Capture
from connectors.postgres import setup
from connectors.postgres.refusers import disabling, event_triggers, refused_by, suspecting, told
from connectors.postgres.session import Session, define, identifier, rows, told_by
from headrace.model.finding import Finding, Severity

__all__ = ["check_event_triggers"]

_SCHEMA = sql.Identifier("headrace")
_OVER = "SET CONSTRAINTS ALL IMMEDIATE"
"""What a deferred trigger is to do is done, as when a registration commits; from then on it is at once."""
_OURS = "SELECT pg_has_role(nspowner, 'USAGE') AS ours FROM pg_namespace WHERE nspname = 'headrace'"
_Trial = tuple[Severity, str, Callable[[], None]]


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
    trials = _trials(connection, gone=Severity.ERROR if anew else Severity.WARNING)
    with suppress(_TakenBack), connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '1s'")
        for severity, what, attempt in trials:
            try:
                with connection.transaction():
                    attempt()
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
                yield Finding.warning("SOURCE_EVENT_TRIGGER", *_untried(triggers, error))
                break
            except psycopg.Error as error:
                yield Finding(severity, "SOURCE_EVENT_TRIGGER", *_refusal(triggers, what, error))
                if severity is Severity.ERROR:
                    break  # what is not made cannot be altered
        raise _TakenBack


def _refusal(triggers: Sequence[DictRow], what: str, error: psycopg.Error) -> tuple[str, str]:
    """Return that something is refused, and what helps.

    A statement may also fail by what a trigger has done to a table before: then no error names the trigger.
    """
    if found := refused_by(triggers, error):
        said = f"An event trigger refuses {what}: {told_by(error)}. There is {told(triggers)}."
        return said, disabling(found)
    reason = f"An event trigger may be the reason: {told(triggers)}."
    said = f"The database refuses {what}: {told_by(error)}. {reason}"
    return said, suspecting(triggers) or disabling(triggers)


def _untried(triggers: Sequence[DictRow], error: psycopg.Error) -> tuple[str, str]:
    """Return that nobody knows whether something is refused: others hold what a registration waits for."""
    said = f"It could not be tried what event triggers make of our statements: {told_by(error)}."
    return f"{said} There is {told(triggers)}.", "Run the same command again."


def _trials(connection: Session, *, gone: Severity) -> Sequence[_Trial]:
    """Return what is tried: what is done to a database, upon a capture of no tables that only the trial has.

    Args:
        connection: To the database.
        gone: How much it matters that it cannot be removed.
    """
    trial = Capture(f"check_{secrets.token_hex(4)}", (), "", "")
    name, table = sql.Identifier(trial.connector), identifier(trial.heartbeat)
    dropped = _dropped(connection, name)

    def made() -> None:
        setup.make(connection, trial)
        connection.execute(_OVER)
        setup.insert_signal(connection, trial.signals, "trial", "log", "{}")

    def altered() -> None:
        define(connection, sql.SQL("ALTER PUBLICATION {} SET (publish = 'insert')").format(name))
        define(connection, sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(name, table))
        define(connection, sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(name, table))

    def removed() -> None:
        setup.forget_publication(connection, trial)
        setup.forget_tables(connection, trial)
        for schema in dropped:
            define(connection, sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
            define(connection, sql.SQL("DROP SCHEMA {}").format(schema))

    return (
        (Severity.ERROR, "what is made in the database", made),
        (
            Severity.WARNING,
            "that the publication is altered, so `source tables` and `source refresh` will be refused",
            altered,
        ),
        (gone, "that it is removed again, so `source remove` will leave it there", removed),
    )


def _dropped(connection: Session, name: sql.Identifier) -> Sequence[sql.Identifier]:
    """Return the schema by which it is tried to drop ours; none where it is another role's, and stays.

    One that is there keeps what other sources have in it, so that another is made of that ``name``.
    """
    there = rows(connection, _OURS)
    if not there:
        return (_SCHEMA,)
    return (name,) if there[0]["ours"] else ()
