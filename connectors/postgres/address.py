"""A database's address: read from a URL or a key-value string, written without any secret."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headrace.config.secrets import is_secret
from headrace.model.errors import UsageError

__all__ = ["address", "parameters"]


def parameters(dsn: str) -> dict[str, str]:
    """Return the connection parameters of a URL or key-value DSN.

    Raises:
        UsageError: When libpq cannot read it (``SOURCE_URL_INVALID``).
    """
    try:
        return {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.ProgrammingError as error:
        raise UsageError(
            "The database's address cannot be read.",
            code="SOURCE_URL_INVALID",
            hint="Write postgres://user:password@host:port/database; percent-encode special characters.",
        ) from error


def address(known: Mapping[str, str]) -> str:
    """Return the URL of connection parameters, without any that holds a secret."""
    user = f"{quote(known['user'], safe='')}@" if "user" in known else ""
    port = f":{known['port']}" if "port" in known else ""
    named = {"user", "port", "host", "dbname"}
    rest = urlencode({n: value for n, value in known.items() if n not in named and not is_secret(n)})
    host = quote(known.get("host", ""), safe="[]:,")
    path = quote(known.get("dbname", ""), safe="")
    return f"postgresql://{user}{host}{port}/{path}{'?' if rest else ''}{rest}"
