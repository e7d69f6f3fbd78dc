"""Changing a password: of a source for its connector, of a sink for the engine, after it was tried."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from connectors import registry as connectors
from headrace.config.references import is_reference, read_reference
from headrace.control.capture import capture_of, secret_of
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.pipelines import rewrite, told_of
from headrace.control.registry import Registry, SinkEntry, now_ms
from headrace.control.sink_settings import checked_settings, forget, given_up, seal
from headrace.model.errors import SinkError, SourceError, UsageError, named, naming
from headrace.model.finding import Severity
from sinks import registry as kinds

__all__ = ["rotate_sink", "rotate_source"]


def rotate_sink(context: Context, name: str, settings: Mapping[str, Any]) -> None:
    """Give a sink other credentials, or have it read those of its ``file:`` anew; the store is tried first.

    A user and a password take the place of an API key, and the other way round.

    Raises:
        UsageError: When another setting than the credentials is given (``SINK_SETTINGS_INVALID``).
        SinkError: When the store refuses them; the sink then goes on with those that it had.
    """
    registry = Registry(context.registry)
    entry = registry.sink(name)
    allowed = {"username"} & kinds.config_model(entry.kind).model_fields.keys() | kinds.secret_names(
        entry.kind
    )
    if strange := sorted(settings.keys() - allowed):
        raise UsageError(
            f"{', '.join(strange)} cannot be changed like a password.",
            code="SINK_SETTINGS_INVALID",
            hint=f"What can: {', '.join(sorted(allowed)) or 'nothing of this kind of sink'}.",
        )
    literal = {
        key: read_reference(value) if is_reference(value) else value for key, value in settings.items()
    }
    gone = given_up(settings.keys())
    left = {key: value for key, value in entry.settings.items() if key not in gone}
    known = checked_settings(entry.kind, entry.source, {**left, **literal})
    with naming(entry.source, name), closing(kinds.build(entry.kind, name, known)) as sink:
        refused = [finding for finding in sink.check() if finding.severity is Severity.ERROR]
    if refused:
        hint = named(refused[0].hint, source=entry.source, sink=name)
        raise SinkError(refused[0].message, code=refused[0].code, hint=hint)
    sealed = seal(context, name, entry.kind, {**known, **settings})
    with registry.begin() as session:
        kept = session.get(SinkEntry, name)
        if kept is not None:
            kept.settings = sealed
    with told_of(name):
        rewrite(context, name, lambda _: {"settings": sealed, "renewed_ms": now_ms()})
    for key in gone:
        forget(context, name, key)
    registry.note(f"sink {name}", "credentials changed")


def rotate_source(context: Context, name: str, password: str) -> None:
    """Give a source another password; the database is tried with it first. The user stays the same.

    Raises:
        SourceError: When the database refuses it, or the connector cannot be told of it
            (``SOURCE_URL_INVALID``); the source then goes on with the one it had.
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    source, capture = connectors.build(entry.kind, entry.address, password, name), capture_of(context, entry)
    source.hold(capture)
    for found in source.check_anew(capture):
        if found.code == "SOURCE_URL_INVALID":
            raise SourceError(found.message, code=found.code, hint=found.hint)
    secret_of(context, name).store(password)
    with Connect(context.connect_url) as connect:
        connector = capture_of(context, entry).connector
        connect.start_over(connector)
        connect.restart(connector)
    registry.note(f"source {name}", "password changed")
