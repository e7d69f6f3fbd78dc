"""Which kinds of source exist; each is imported on first use, so its client library is too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from connectors.base import Columns, Source
from headrace.model.errors import UsageError
from headrace.model.schema import TableSchema

__all__ = [
    "KINDS",
    "build",
    "first_told",
    "goes_on_after",
    "kind_of",
    "misread",
    "newest_beat",
    "reached",
    "why_unreadable",
]

KINDS: dict[str, str] = {
    "postgres": "connectors.postgres:PostgresSource",
}
_UNREADABLE = {"postgres": "connectors.postgres.reread:why_unreadable"}
_GOES_ON = {"postgres": "connectors.postgres.by_key:goes_on_after"}
_FIRST_TOLD = {"postgres": "connectors.postgres.by_key:first_told"}
_MISREAD = {"postgres": "connectors.postgres.specimens:misread"}
_HOLDS = {"postgres": "connectors.postgres.specimens:holds"}
_SCHEMES = {"postgres": "postgres", "postgresql": "postgres"}


def kind_of(url: str) -> str:
    """Return the source kind of a database URL.

    Raises:
        UsageError: When its scheme is none we know (``SOURCE_URL_INVALID``).
    """
    scheme, found, _ = url.partition("://")
    if found and scheme.lower() in _SCHEMES:
        return _SCHEMES[scheme.lower()]
    raise UsageError(
        "The source's address is no database URL.",
        code="SOURCE_URL_INVALID",
        hint="Write postgres://user:password@host:port/database, or env:NAME to take it from a variable.",
    )


def build(
    kind: str,
    url: str,
    password: str | None = None,
    name: str | None = None,
    leave_out: Columns | None = None,
    seen: Mapping[str, Any] | None = None,
) -> Source:
    """Build the source of ``kind`` at ``url``; connects lazily. ``password`` overrules the URL's.

    Its errors tell what to do about the source that is registered as ``name``. Columns to ``leave_out`` are
    captured by nobody, whatever they are called since the last look, whose facts are ``seen``.

    Raises:
        UsageError: When the kind is unknown (``SOURCE_KIND_UNKNOWN``).
    """
    try:
        module, _, made = KINDS[kind].partition(":")
    except KeyError:
        raise UsageError(
            f"There is no source kind “{kind}”.",
            code="SOURCE_KIND_UNKNOWN",
            hint=f"Kinds: {', '.join(KINDS)}.",
        ) from None
    source: Source = getattr(import_module(module), made)(url, password, name, leave_out, seen)
    return source


def reached(
    url: str,
    password: str | None = None,
    leave_out: Columns | None = None,
    seen: Mapping[str, Any] | None = None,
) -> Source:
    """Return the source of an address that a person gives; it means the same from everywhere.

    What the client took from its environment, such as ``PGHOST`` or a file of services, is in the address.

    Raises:
        UsageError: As of :func:`kind_of`.
        SourceError: When the database does not answer.
    """
    kind = kind_of(url)
    given = build(kind, url, password)
    return build(kind, given.resolved, given.password, leave_out=leave_out, seen=seen)


def why_unreadable(kind: str, schema: TableSchema) -> str:
    """Return why the connector cannot read a table anew beside the stream; empty when it can."""
    if kind not in _UNREADABLE:
        return ""
    module, _, name = _UNREADABLE[kind].partition(":")
    return str(getattr(import_module(module), name)(schema))


def goes_on_after(kind: str, schema: TableSchema) -> bool:
    """Return whether the connector can read a table from a key on that it has told."""
    module, _, name = _GOES_ON.get(kind, "").partition(":")
    return bool(module and getattr(import_module(module), name)(schema))


def first_told(kind: str, schema: TableSchema, told: str) -> str:
    """Return the first value of a key that the connector has told of a table; see :func:`goes_on_after`."""
    module, _, name = _FIRST_TOLD[kind].partition(":")
    return str(getattr(import_module(module), name)(schema, told))


def misread(kind: str, records: Sequence[Mapping[str, Any]], schema: TableSchema | None = None) -> str:
    """Return of which types values arrived as others, by records of the heartbeat; empty when of none.

    With a ``schema`` only those count whose values are read as some of its columns are.
    """
    if kind not in _MISREAD:
        return ""
    module, _, name = _MISREAD[kind].partition(":")
    look = getattr(import_module(module), name)
    return ", ".join(sorted({told for one in records for told in look(one, schema)}))


def newest_beat(kind: str, records: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the newest heartbeat among records of its topic, in which marks lie as well."""
    if kind not in _HOLDS:
        return ()
    module, _, name = _HOLDS[kind].partition(":")
    holds = getattr(import_module(module), name)
    return [one for one in records if holds(one.get("after") or {})][-1:]
