"""Event triggers of others: which there are, which of them has refused a statement, and what helps."""

from __future__ import annotations

import re
from collections.abc import Sequence

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

from connectors.postgres.granted import rows_if_granted

__all__ = ["disabled", "disabling", "event_triggers", "refused_by"]

_TRIGGERS = """
SELECT e.evtname::text AS name, e.evtowner::regrole::text AS owner, e.evtevent::text AS event,
       e.evtfoid::regproc::text AS function, e.evtfoid::regprocedure::text AS signature,
       current_user::text AS role
FROM pg_event_trigger e WHERE e.evtenabled IN ('O', 'A') ORDER BY e.evtname
"""


def event_triggers(connection: psycopg.Connection[DictRow], *, login: bool = False) -> list[DictRow]:
    """Return the event triggers that are run for statements of ours; none where our role may not see them.

    Args:
        connection: To the database.
        login: Those that are run when a session begins, and no others.
    """
    found = rows_if_granted(connection, _TRIGGERS) or []
    return [one for one in found if (one["event"] == "login") is login]


def refused_by(triggers: Sequence[DictRow], error: psycopg.Error) -> list[DictRow]:
    """Return those whose function the error says, in whatever language, that it comes from."""
    context = error.diag.context or ""
    named = {one["name"]: rf'(?<![\w."]){re.escape(one["signature"])}' for one in triggers}
    return [one for one in triggers if re.search(named[one["name"]], context)]


def disabling(triggers: Sequence[DictRow]) -> str:
    """Return what helps against event triggers that refuse."""
    one = triggers[0]
    other = f"or give {one['role']} the rights that the function needs"
    return f"{disabled(triggers)}  -- as {one['owner']}; {other}"


def disabled(triggers: Sequence[DictRow]) -> str:
    """Return the statements that disable event triggers."""
    return " ".join(
        f"ALTER EVENT TRIGGER {sql.Identifier(each['name']).as_string()} DISABLE;" for each in triggers
    )
