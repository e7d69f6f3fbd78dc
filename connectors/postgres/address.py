"""A database's address: read from a URL or a key-value string, written without any secret."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from headrace.config.secrets import is_secret
from headrace.model.errors import UsageError
from headrace.model.finding import Finding

__all__ = ["CUT", "address", "check_address", "parameters", "resolved"]

CUT = "".join(map(chr, range(0x21)))
"""What Connect, which is Java, cuts off at both ends of whatever it is told."""

_ELSEWHERE = ("service", "servicefile", "passfile")
_UNTOLD: Mapping[str, Collection[str]] = {
    "channel_binding": ("prefer", "disable"),
    "gssencmode": ("prefer", "disable"),
    "load_balance_hosts": ("disable",),
    "min_protocol_version": ("3.0",),
    "options": (),
    "require_auth": (),
    "ssl_min_protocol_version": ("TLSv1", "TLSv1.1", "TLSv1.2"),
    "sslcertmode": ("allow", "disable"),
    "sslcrl": (),
    "sslcrldir": (),
    "sslnegotiation": ("postgres",),
    "sslsni": ("1",),
    "target_session_attrs": ("any",),
}
"""What makes a connection safer, or another one, and is of libpq alone → values without consequence."""
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir")
# A session of ours has options of its own.
_CARRIED = {"host", "hostaddr", "port", "user", "dbname", "sslmode", *_FILES, *_UNTOLD} - {"options"}


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
    others = {n: value for n, value in known.items() if n not in named and not is_secret(n)}
    rest = urlencode(others, quote_via=quote)  # libpq takes a plus for what it is
    named_host = known.get("host", "")
    host = quote(named_host, safe="[]:,")
    if ":" in named_host and not named_host.startswith("["):
        host = f"[{host}]"  # a number of IPv6: its colons are not the port's
    path = quote(known.get("dbname", ""), safe="")
    return f"postgresql://{user}{host}{port}/{path}{'?' if rest else ''}{rest}"


def resolved(known: Mapping[str, str], told: Mapping[str, str]) -> dict[str, str]:
    """Return parameters that mean the same whoever asks, and from wherever.

    Args:
        known: Those that were given.
        told: Those of a connection that was opened by them: with what libpq took from the environment, or
            from a file of services. Files are named from the root.
    """
    # Of several hosts the one that answered is told, and what libpq does unless it is told otherwise.
    found = {n: value for n, value in told.items() if n in _CARRIED and value not in _UNTOLD.get(n, ())}
    found |= {n: value for n, value in known.items() if n not in _ELSEWHERE}
    if "host" in known or os.environ.get("PGHOST"):  # the client has looked the number up, and it may change
        number = known.get("hostaddr") or os.environ.get("PGHOSTADDR")
        found = {n: value for n, value in found.items() if n != "hostaddr"}
        found |= {"hostaddr": number} if number else {}
    paths = {n: str(Path(found[n]).absolute()) for n in _FILES if found.get(n) not in (None, "", "system")}
    return {**found, **paths}


def check_address(known: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what libpq heeds of an address and the connector, which is Java, cannot be told.

    It knows one host and follows no other.
    """
    hosts = known.get("host") or known.get("hostaddr") or ""
    if "," in hosts:
        yield Finding.error(
            "SOURCE_URL_INVALID",
            f"The address names several hosts, {hosts}; the connector can be told of one only.",
            "Give the host name that leads to the primary: postgres://user:password@host:port/database.",
        )
    if known.get("sslrootcert") == "system":
        yield Finding.error(
            "SOURCE_URL_INVALID",
            "The connector does not know the system's authorities (sslrootcert=system).",
            "Name a file that holds them: sslrootcert=/etc/ssl/certs/ca-certificates.crt",
        )
    yield from _several(known, hosts)
    user, password = known.get("user", ""), known.get("password", "")
    odd = {
        "begins or ends with blanks, which Connect cuts off": user != user.strip(CUT),
        "holds a quote, which the connector puts into its statements as it is": "'" in user,
    }
    for why in (why for why, so in odd.items() if so):
        yield Finding.error(
            "SOURCE_URL_INVALID",
            f"The role {user!r} {why}.",
            f'ALTER ROLE {sql.Identifier(user).as_string()} RENAME TO "…";  -- and give that one',
        )
    if password != password.strip(CUT):
        yield Finding.error(
            "SOURCE_URL_INVALID",
            "The password begins or ends with blanks, which Connect cuts off.",
            "Give the role a password without: ALTER ROLE … PASSWORD '…'; then use that one.",
        )
    if untold := [name for name, harmless in _UNTOLD.items() if known.get(name, "") not in ("", *harmless)]:
        yield Finding.warning(
            "SOURCE_URL_PARTLY",
            f"The connector cannot be told of {', '.join(untold)}: it connects without.",
            "Take them out of the address if the connector may be without them; there is no other way yet.",
        )


def _several(known: Mapping[str, str], host: str) -> Iterator[Finding]:
    """Yield that a name leads to several servers: libpq goes on to the next where one does not let it in."""
    if "hostaddr" in known or not host or host.startswith("/") or "," in host:
        return
    numbers: dict[int, set[str]] = {}
    with suppress(OSError, UnicodeError):  # whether the name leads anywhere is told when it is used
        for family, _, _, _, place in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
            if not ip_address(str(place[0]).partition("%")[0]).is_loopback:
                numbers.setdefault(family, set()).add(str(place[0]))
    several = sorted(max(numbers.values(), key=len, default=()))
    if len(several) > 1:  # one of each family is the same server
        yield Finding.warning(
            "SOURCE_HOST_SEVERAL",
            f"{host} leads to {', '.join(several)}: the connector may reach another of them than we do.",
            "If they are several servers, give a name that leads to the primary alone.",
        )
