"""Event triggers on login: what they make of the sessions in which the connector reads values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from connectors.postgres.properties import session_settings, startup_options
from connectors.postgres.refusers import disabled, event_triggers, named_in
from connectors.postgres.session import Session
from connectors.postgres.way_in import refused_with
from headrace.model.finding import Finding
from headrace.model.pasted import remark

__all__ = ["check_login"]

_TIMEOUT_S = 10
_FOUND = """
SELECT name, current_setting(name) AS found, set_config(name, value, false) AS wanted
FROM (VALUES {}) AS asked(name, value)
"""


def check_login(connection: Session, known: Mapping[str, str]) -> Iterator[Finding]:
    """Yield an error where a trigger on login ends the connector's sessions, or gives them other settings.

    In our own sessions settings are made after it. The connector can only ask for them when it connects, and
    the trigger, which is run later, overrules them; in the session that replicates, too, so that the stream
    tells other values. Where there is such a trigger, a session of each kind is opened as the connector opens
    it, and asked what it has. What else keeps a session from being opened is told elsewhere.

    Args:
        connection: To the database.
        known: The parameters it was made from.
    """
    triggers = event_triggers(connection, login=True)
    if not triggers:
        return
    asked = {**session_settings(connection.info.server_version), "DateStyle": "ISO"}
    found: dict[str, None] = {}
    for kind in ({}, {"replication": "database"}):
        try:
            found.update(dict.fromkeys(f"another {name}" for name in _changed({**known, **kind}, asked)))
        except psycopg.OperationalError as error:
            if named_in(str(error), triggers):
                found[f"no way in ({refused_with(error)})"] = None
    if not found:
        return
    named = ", ".join(f"{one['name']} (runs {one['function']})" for one in triggers)
    owner, role = remark(triggers[0]["owner"]), remark(triggers[0]["role"])
    yield Finding.error(
        "SOURCE_LOGIN_TRIGGER",
        f"Event triggers on login give the connector's sessions {', '.join(found)}. There is {named}.",
        f"{disabled(triggers)}  -- as {owner}; or have the function pass {role} by",
    )


def _changed(known: Mapping[str, str], asked: Mapping[str, str]) -> list[str]:
    """Return the settings that a session has not as they were asked for when it was opened."""
    parameters = {"connect_timeout": str(_TIMEOUT_S), "application_name": "headrace", **known}
    parameters["options"] = startup_options(asked)
    # A session for replication takes statements without parameters only.
    pairs = (sql.SQL("({}, {})").format(name, value) for name, value in asked.items())
    asking = sql.SQL(_FOUND).format(sql.SQL(", ").join(pairs))
    with psycopg.connect(**parameters, autocommit=True, row_factory=dict_row) as session:  # type: ignore[arg-type]
        try:
            rows = session.execute(asking.as_bytes()).fetchall()
        except psycopg.errors.QueryCanceled:
            return ["statement_timeout"]
    return [row["name"] for row in rows if row["found"] != row["wanted"]]
