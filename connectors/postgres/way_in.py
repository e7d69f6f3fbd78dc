"""What helps when a server does not let us in, by what it says.

The library does not hand on the code of such an error, so its English words tell. Of others nothing is
guessed: advice about a password is for those who were refused because of it.
"""

from __future__ import annotations

import re

import psycopg
from psycopg import sql

from headrace.config.secrets import mask_text

__all__ = ["refused_with", "way_in"]

_OF_LOGIN = (
    "SELECT format('ALTER EVENT TRIGGER %I DISABLE;', evtname) FROM pg_event_trigger"
    " WHERE evtevent = 'login';  -- as a superuser, whom PGOPTIONS='-c event_triggers=off' lets in; then run"
    " what it gives, or have the function pass {user} by"
)
_WAYS = (
    (r"CONTEXT: ", _OF_LOGIN),  # of a function: a database runs no other before somebody is in
    (
        r"too many (clients|connections)|remaining connection slots",
        "End connections that nobody needs; see who has them in pg_stat_activity. Or raise the limit.",
    ),
    (
        r'database "(?P<name>.*)" is not currently accepting connections',
        "ALTER DATABASE {name} ALLOW_CONNECTIONS true;",
    ),
    (r"Hot standby mode is disabled", "Give the address of the primary."),
    (
        r"starting up|shutting down|in recovery|not yet accepting connections",
        "Wait until the server is up, then run the command again.",
    ),
    (r'permission denied for database "(?P<name>.*)"', "GRANT CONNECT ON DATABASE {name} TO {user};"),
    (r'role "(?P<name>.*)" is not permitted to log in', "ALTER ROLE {name} LOGIN;"),
    (r"role .* does not exist", "Check the user's name; it is case-sensitive."),
    (r"database .* does not exist", "Check the database's name; it is case-sensitive."),
    (r"(password|LDAP|PAM|RADIUS|BSD) authentication failed", "Check user and password."),
    (r"no password supplied", "Give a password: in the address, by PGPASSWORD or in ~/.pgpass."),
    (
        r"pg_hba\.conf|authentication failed",
        "Let this user in from this host by a line of pg_hba.conf; then: SELECT pg_reload_conf();",
    ),
    (r"SSL|certificate", "Check sslmode, sslrootcert and the certificates that the address names."),
)
_ELSE = "`headrace up` starts the local one; of another, check host and port; its log says what it refuses."


def way_in(said: str, user: str | None) -> str:
    """Return what helps; where nobody can say, in any language but English, where to look.

    Args:
        said: By the server, or by the library about it.
        user: Who wanted to be let in; None where the address does not say.
    """
    for words, hint in _WAYS:
        if found := re.search(words, said):
            names = {**found.groupdict(), "user": user}
            return hint.format_map({name: _quoted(value) for name, value in names.items()})
    return _ELSE


def refused_with(error: psycopg.Error) -> str:
    """Return what a server says that lets nobody in, in one line, without where it was reached."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return mask_text(line.rpartition(":  ")[2])


def _quoted(name: str | None) -> str:
    return "…" if name is None else sql.Identifier(name).as_string()
