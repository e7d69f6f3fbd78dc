"""What helps when a server does not let us in, by what it says.

Its English words tell most; where it speaks another language, its code. Nothing is guessed: advice about a
password is for those who were refused because of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import psycopg
from psycopg import sql

from headrace.config.secrets import mask_text

__all__ = ["CREDENTIALS", "refused_with", "way_in"]

CREDENTIALS = "Check user and password."
"""What helps whoever is refused for the password."""
_FULL = "End connections that nobody needs; see who has them in pg_stat_activity. Or raise the limit."
_NO_DATABASE = "Check the database's name; it is case-sensitive."
_COMING = "Wait until the server is up, then run the command again."

_OF_LOGIN = (
    "SELECT format('ALTER EVENT TRIGGER %I DISABLE;', evtname) FROM pg_event_trigger"
    " WHERE evtevent = 'login';  -- as a superuser, whom PGOPTIONS='-c event_triggers=off' lets in; then run"
    " what it gives, or have the function pass {user} by"
)
_WAYS = (
    (r"CONTEXT: ", _OF_LOGIN),  # of a function: a database runs no other before somebody is in
    (r"too many (clients|connections)|remaining connection slots", _FULL),
    (
        r'database "(?P<name>.*)" is not currently accepting connections',
        "ALTER DATABASE {name} ALLOW_CONNECTIONS true;",
    ),
    (r"Hot standby mode is disabled", "Give the address of the primary."),
    (r"starting up|shutting down|in recovery|not yet accepting connections", _COMING),
    (r'permission denied for database "(?P<name>.*)"', "GRANT CONNECT ON DATABASE {name} TO {user};"),
    (r'role "(?P<name>.*)" is not permitted to log in', "ALTER ROLE {name} LOGIN;"),
    (r"role .* does not exist", "Check the user's name; it is case-sensitive."),
    (r"database .* does not exist", _NO_DATABASE),
    (r"(password|LDAP|PAM|RADIUS|BSD) authentication failed", CREDENTIALS),
    (r"no password supplied", "Give a password: in the address, by PGPASSWORD or in ~/.pgpass."),
    (
        r"pg_hba\.conf|authentication failed",
        "Let this user in from this host by a line of pg_hba.conf; then: SELECT pg_reload_conf();",
    ),
    (r"SSL|certificate", "Check sslmode, sslrootcert and the certificates that the address names."),
)
_BY_CODE = {
    "28P01": CREDENTIALS,
    "28000": "Check the user's name, which is case-sensitive. If it is right: ALTER ROLE {user} LOGIN; and"
    " let it in from this host by a line of pg_hba.conf; then: SELECT pg_reload_conf();",
    "3D000": _NO_DATABASE,
    "42501": "GRANT CONNECT ON DATABASE {name} TO {user};",
    "53300": _FULL,
    "55000": "ALTER DATABASE {name} ALLOW_CONNECTIONS true;",
    "57P03": _COMING,
}
_ELSE = "`headrace up` starts the local one; of another, check host and port; its log says what it refuses."


def way_in(
    said: str,
    user: str | None,
    database: str | None = None,
    code: Callable[[], str] = str,
) -> str:
    """Return what helps; where nobody can say, where to look.

    Args:
        said: By the server, or by the library about it.
        user: Who wanted to be let in; None where the address does not say.
        database: Into which; None where the address does not say.
        code: Tells the code of the refusal; called where the words say nothing.
    """
    for words, hint in _WAYS:
        if found := re.search(words, said):
            names = {**found.groupdict(), "user": user}
            return hint.format_map({name: _quoted(value) for name, value in names.items()})
    names = {"name": database or user, "user": user}
    hint = _BY_CODE.get(code(), _ELSE)
    return hint.format_map({name: _quoted(value) for name, value in names.items()})


def refused_with(error: psycopg.Error) -> str:
    """Return what a server says that lets nobody in, in one line, without where it was reached."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return mask_text(line.rpartition(":  ")[2])


def _quoted(name: str | None) -> str:
    return "…" if name is None else sql.Identifier(name).as_string()
