"""Whether others can read, or answer, what goes between us and the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from connectors.postgres.session import Session
from headrace.model.finding import Finding

__all__ = ["check_encryption"]

_HERE = frozenset({"localhost", "127.0.0.1", "::1", ""})
_VERIFIED = "verify-full"


def check_encryption(connection: Session, known: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a warning when the database is on another machine and the way to it is not safe.

    Args:
        connection: To the database.
        known: The parameters it was made from; the connector's follow from the same.
    """
    host = connection.info.host
    if host in _HERE or host.startswith("/"):
        return
    way = "Put sslmode=verify-full, and sslrootcert=… for an authority of your own, into the address."
    if not connection.pgconn.ssl_in_use:
        yield Finding.warning(
            "SOURCE_UNENCRYPTED",
            f"What goes between here and {host} is not encrypted: who is on the way can read rows.",
            f"Switch ssl on in Postgres. {way}",
        )
    elif known.get("sslmode") != _VERIFIED:
        said = known.get("sslmode", "prefer")
        yield Finding.warning(
            "SOURCE_UNVERIFIED",
            f"With sslmode={said} nobody makes sure that it is {host} that answers.",
            way,
        )
