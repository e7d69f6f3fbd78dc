"""References to secrets, ``env:NAME`` and ``file:PATH[:key]``, resolved only where a client is made."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from headrace.config.secrets import SecretRef
from headrace.model.errors import UsageError

__all__ = ["ENVIRONMENT", "FILE", "is_reference", "read_reference", "resolved", "taken_apart"]

ENVIRONMENT = "env:"
FILE = "file:"


def is_reference(value: object) -> bool:
    """Say whether a setting tells where its secret is."""
    return isinstance(value, str) and value.startswith((ENVIRONMENT, FILE))


def read_reference(reference: str) -> str:
    """Return the secret that a reference names; a file without a key holds nothing else.

    Raises:
        UsageError: When it is not there (``SECRET_MISSING``).
    """
    scheme, _, place = reference.partition(":")
    if f"{scheme}:" == ENVIRONMENT:
        if place in os.environ:
            return os.environ[place]
        raise UsageError(
            f"The variable {place} is not set.", code="SECRET_MISSING", hint=f"export {place}=…, then again."
        )
    try:
        whole = Path(place).expanduser()
        if whole.is_file():
            return whole.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        path, _, key = place.rpartition(":")
        return SecretRef(Path(path).expanduser(), key).read()
    except (OSError, KeyError, ValueError, RuntimeError) as error:  # the last: no home of that user
        raise UsageError(
            f"The secret {reference} cannot be read ({type(error).__name__}).",
            code="SECRET_MISSING",
            hint="Write it to that file, mode 0600; or name another place where a secret is given.",
        ) from None


def resolved(settings: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return settings with the secrets in place of the references; for the client that needs them only.

    Raises:
        UsageError: When one cannot be read (``SECRET_MISSING``).
    """
    return {
        name: read_reference(value) if name in names and is_reference(value) else value
        for name, value in settings.items()
    }


def taken_apart(url: str) -> tuple[str, str | None, str | None]:
    """Return a URL, or several separated by commas, without user and password, and those two."""
    user, password, plain = None, None, []
    for part in url.split(","):
        pieces = urlsplit(part.strip())
        login, at, place = pieces.netloc.rpartition("@")
        if at:
            name, colon, secret = login.partition(":")
            user = unquote(name) or user
            password = unquote(secret) if colon else password
        asked = parse_qsl(pieces.query, keep_blank_values=True)
        told = dict(asked)
        user, password = told.get("username", user), told.get("password", password)
        rest = urlencode([(name, value) for name, value in asked if name not in ("username", "password")])
        plain.append(urlunsplit(pieces._replace(netloc=place, query=rest)))
    return ",".join(plain), user, password
