"""A sink's settings: checked, and its secrets kept in private files, which the settings only name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headrace.config.pipeline import write_private
from headrace.config.references import ENVIRONMENT, FILE, is_reference, read_reference, taken_apart
from headrace.control.context import Context
from headrace.model.errors import UsageError
from headrace.model.finding import Finding
from sinks import registry as kinds
from sinks.shadow import refuse_setting

__all__ = ["apart", "checked_settings", "forget", "given_up", "seal", "secrets_of", "shown_secrets"]

_PREFIXES = {"prefix": "-", "key_prefix": ":"}
_KEY, _USER = "api_key", {"username", "password"}


def checked_settings(kind: str, source: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings when the kind's own model accepts them.

    Names in the store begin with the source's name unless the settings say otherwise, so that two
    sources with equal tables do not meet. An address keeps neither user nor password: see :func:`apart`.

    Raises:
        UsageError: When it does not (``SINK_KIND_UNKNOWN``, ``SINK_SETTINGS_INVALID``).
    """
    refuse_setting(settings)
    model = kinds.config_model(kind)
    complete = {
        **{name: source + mark for name, mark in _PREFIXES.items() if name in model.model_fields},
        **apart(kind, settings),
    }
    try:
        model(**complete)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'settings'}: {problem['msg']}"
            for problem in error.errors()
        )
        known = ", ".join(model.model_fields)
        raise UsageError(
            f"The settings do not fit a {kind} sink: {wrong}.",
            code="SINK_SETTINGS_INVALID",
            hint=f"Settings of {kind}: {known}.",
        ) from None
    return complete


def apart(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings whose address holds no user and no password: those are settings of their own.

    What is given on its own wins over what stands in the address.
    """
    known = kinds.config_model(kind).model_fields
    url = settings.get("url")
    if not isinstance(url, str) or "password" not in known:
        return dict(settings)
    plain, user, password = taken_apart(url)
    found: dict[str, Any] = {"username": user, "password": password}
    if settings.get("api_key") is not None:
        found = {}
    return {**{name: value for name, value in found.items() if value is not None}, **settings, "url": plain}


def seal(context: Context, sink: str, kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which every secret is a reference to a file; what is in none yet gets a private one.

    A variable is read now: the process that applies changes may be started by others, without it.

    Raises:
        UsageError: When a reference leads nowhere (``SECRET_MISSING``).
    """
    sealed = dict(settings)
    for name in kinds.secret_names(kind) & settings.keys():
        value = settings[name]
        if value is None:
            continue
        if is_reference(value):
            secret = read_reference(value)
            if value.startswith(FILE):
                sealed[name] = FILE + str(Path(value.removeprefix(FILE)).expanduser().absolute())
                continue
        else:
            secret = str(value)
        path = _place(context, sink, name)
        write_private(path, secret)
        sealed[name] = f"{FILE}{path}"
    return sealed


def shown_secrets(kind: str, given: Mapping[str, Any]) -> list[Finding]:
    """Return a warning for secrets that were written on a command line."""
    literal = [n for n in kinds.secret_names(kind) & given.keys() if not is_reference(given[n])]
    if "url" in given and taken_apart(str(given["url"]))[2] is not None:
        literal.append("url")
    if not literal:
        return []
    return [
        Finding.warning(
            "SECRET_ON_COMMAND_LINE",
            f"A secret was written on the command line ({', '.join(sorted(literal))}): "
            "others on this machine may have seen it, and the shell remembers it.",
            f"Next time write --set password={ENVIRONMENT}NAME or --set password={FILE}PATH.",
        )
    ]


def given_up(told: Collection[str]) -> set[str]:
    """Return the credentials that others replace: a key those of a user, and the other way round."""
    told = set(told)
    if _KEY in told:
        return set() if told & _USER else set(_USER)
    return {_KEY} if told & _USER else set()


def secrets_of(context: Context, sink: str, name: str = "*") -> set[Path]:
    """Return the private files of a sink, or that of one setting."""
    return set(context.sink_secrets.glob(f"{sink}.{name}"))


def forget(context: Context, sink: str, name: str = "*", *, but: Collection[Path] = ()) -> None:
    """Remove the private files of a sink, but for some, or that of one setting; idempotent."""
    for path in secrets_of(context, sink, name) - set(but):
        path.unlink(missing_ok=True)


def _place(context: Context, sink: str, name: str) -> Path:
    return context.sink_secrets / f"{sink}.{name}"
