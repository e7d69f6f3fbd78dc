"""Event triggers of others: which there are, which of them has refused a statement, and what helps."""

from __future__ import annotations

import re
from collections.abc import Sequence

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

from connectors.postgres.granted import rows_if_granted
from headrace.model.pasted import remark

__all__ = ["disabled", "disabling", "event_triggers", "named_in", "refused_by", "suspecting", "told"]

_TRIGGERS = """
SELECT e.evtname::text AS name, e.evtowner::regrole::text AS owner, e.evtevent::text AS event,
       format('%I.%I', n.nspname, p.proname) AS function, quote_ident(p.proname) AS called,
       n.nspname IN (current_user, 'public') AS seen, current_user::text AS role
FROM pg_event_trigger e JOIN pg_proc p ON p.oid = e.evtfoid JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE e.evtenabled IN ('O', 'A') ORDER BY e.evtname
"""

_WHEN_MADE = ("ddl_command_start", "ddl_command_end")


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
    return named_in(error.diag.context or "", triggers)


def named_in(context: str, triggers: Sequence[DictRow]) -> list[DictRow]:
    """Return those whose function a server's words name."""
    return [one for one in triggers if any(_tells(context, name) for name in _names(one))]


def _names(trigger: DictRow) -> tuple[str, ...]:
    """Return what an error may call the function: without its schema where our statements saw it so."""
    return (trigger["function"], trigger["called"]) if trigger["seen"] else (trigger["function"],)


def _tells(context: str, function: str) -> bool:
    return re.search(rf'(?<![\w."]){re.escape(function)}\(\)', context) is not None


def disabling(triggers: Sequence[DictRow]) -> str:
    """Return what helps against event triggers that refuse."""
    one = triggers[0]
    owner, role = remark(one["owner"]), remark(one["role"])
    return f"{disabled(triggers)}  -- as {owner}; or give {role} the rights that the function needs"


def suspecting(triggers: Sequence[DictRow]) -> str:
    """Return what helps where one of the event triggers may have changed what is made; empty without any.

    Only those count that are run when something is made.
    """
    found = [one for one in triggers if one["event"] in _WHEN_MADE]
    if not found:
        return ""
    one = "it" if len(found) == 1 else "one of them"
    owners = ", ".join(sorted({remark(each["owner"]) for each in found}))
    left = "or have its function change no table of the schema headrace"
    return f"{disabled(found)}  -- as {owners}, if {one} changes each new table; {left}"


def told(triggers: Sequence[DictRow]) -> str:
    """Return which they are, when each is run, and what it runs."""
    return ", ".join(f"{one['name']} (on {one['event']}, runs {one['function']})" for one in triggers)


def disabled(triggers: Sequence[DictRow]) -> str:
    """Return the statements that disable event triggers."""
    return " ".join(
        f"ALTER EVENT TRIGGER {sql.Identifier(each['name']).as_string()} DISABLE;" for each in triggers
    )
