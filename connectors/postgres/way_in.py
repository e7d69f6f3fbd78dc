"""What helps when a server does not let us in, by what it says."""

from __future__ import annotations

import re

__all__ = ["way_in"]

_WAYS = (
    (
        r"too many (clients|connections)|remaining connection slots",
        "End connections that nobody needs; see who has them in pg_stat_activity. Or raise the limit.",
    ),
    (r"starting up|shutting down|in recovery", "Wait until the server is up, then run the command again."),
    (r"password authentication failed", "Check user and password."),
    (r"no pg_hba\.conf entry", "Let this host in by a line of pg_hba.conf; then: SELECT pg_reload_conf();"),
    (r"database .* does not exist", "Check the database's name; it is case-sensitive."),
    (r"not permitted to log in", "ALTER ROLE … LOGIN;  -- for the role that is named"),
    (r"SSL|certificate", "Check sslmode, sslrootcert and the certificates that the address names."),
)
_ELSE = (
    "`headrace up` starts the local one; of another, check host, port, user, password, database"
    " name and pg_hba.conf."
)


def way_in(said: str) -> str:
    """Return what helps; for a server that speaks another language than English, the general advice."""
    return next((hint for words, hint in _WAYS if re.search(words, said)), _ELSE)
