"""Event triggers of others: which there are, which of them has refused a statement, and what helps."""

from __future__ import annotations

import re
from collections.abc import Sequence

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

from headrace.model.pasted import remark

__all__ = ["disabling", "event_triggers", "refused_by"]

_TRIGGERS = """
SELECT e.evtname::text AS name, e.evtowner::regrole::text AS owner, e.evtevent::text AS event,
       format('%I.%I', n.nspname, p.proname) AS function, quote_ident(p.proname) AS called,
       n.nspname IN (current_user, 'public') AS seen, current_user::text AS role
FROM pg_event_trigger e JOIN pg_proc p ON p.oid = e.evtfoid JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE e.evtenabled IN ('O', 'A') AND e.evtevent <> 'login' ORDER BY e.evtname
"""


def event_triggers(connection: psycopg.Connection[DictRow]) -> list[DictRow]:
    """Return the event triggers that are run for statements of ours."""
    return connection.execute(_TRIGGERS).fetchall()


def refused_by(triggers: Sequence[DictRow], error: psycopg.Error) -> list[DictRow]:
    """Return those whose function the error says, in whatever language, that it comes from."""
    context = error.diag.context or ""
    return [one for one in triggers if any(_tells(context, name) for name in _names(one))]


def _names(trigger: DictRow) -> tuple[str, ...]:
    """Return what an error may call the function: without its schema where our statements saw it so."""
    return (trigger["function"], trigger["called"]) if trigger["seen"] else (trigger["function"],)


def _tells(context: str, function: str) -> bool:
    return re.search(rf'(?<![\w."]){re.escape(function)}\(\)', context) is not None


def disabling(triggers: Sequence[DictRow]) -> str:
    """Return what helps against event triggers."""
    one = triggers[0]
    disable = " ".join(
        f"ALTER EVENT TRIGGER {sql.Identifier(each['name']).as_string()} DISABLE;" for each in triggers
    )
    owner, role = remark(one["owner"]), remark(one["role"])
    return f"{disable}  -- as {owner}; or give {role} the rights that the function needs"
