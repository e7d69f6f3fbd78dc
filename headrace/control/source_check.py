"""What `source add` would refuse, and what would go wrong soon: asked before anything is made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from connectors import registry as kinds
from connectors.base import Capture, Keys, Source
from headrace.config.source import SourceSettings, valid_name
from headrace.control.adding import begun_source, is_same_source, source_exists
from headrace.control.capture import last_look, secret_of
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.fitness import findings_of, refuse_unmeant, refuse_used, without_unfit
from headrace.control.kafka import Kafka
from headrace.control.lost import password_left
from headrace.control.registry import Registry, SourceEntry
from headrace.control.topics import topics_of
from headrace.control.worker import missing, refuse_without
from headrace.model.errors import HeadraceError, SourceError
from headrace.model.finding import Finding
from headrace.model.schema import TableId

__all__ = ["check", "is_remains", "refuse_taken"]

_PLACEHOLDER = "__headrace_unavailable_"
"""Of a capture that is not to be made."""


def check(
    url: str,
    *,
    tables: Sequence[TableId] = (),
    schemas: Sequence[str] = ("public",),
    keys: Keys | None = None,
    settings: SourceSettings | None = None,
    place: tuple[Context, str] | None = None,
) -> list[Finding]:
    """Return what speaks for or against adding the database; changes nothing.

    Args:
        url: The database.
        tables: Which tables; all of ``schemas`` when empty.
        schemas: All tables of these.
        keys: Declared keys.
        settings: What the source would be added with.
        place: The installation, and the name that the source would have there; without it nothing is said
            about Connect, Kafka and what has that name already.

    Raises:
        UsageError: When the address or the name is none, or a key is declared for a table not captured.
        SourceError: When the database does not answer.
    """
    settings = settings or SourceSettings()
    kept, seen = None, dict[str, Any]()
    if place is not None:
        valid_name(place[1], of="source")
        kept = password_left(place[0], place[1], url)
        if settings.leave_out and place[0].registry.exists():
            seen.update(last_look(*place))
    source = kinds.reached(url, kept, settings.columns_left_out, seen)
    wanted = list(tables) or source.tables(schemas)
    refuse_unmeant(wanted, keys or {}, settings.columns_left_out)
    found = findings_of(source, wanted, keys, settings)
    if place is None:
        capture = Capture(source="check", tables=(), placeholder=_PLACEHOLDER, password="", settings=settings)
        return [*found, *_refusal(lambda: source.properties(capture))]
    fit, _ = without_unfit(found, wanted)
    declared = {table: key for table, key in (keys or {}).items() if table in fit}
    capture = Capture(
        source=place[1],
        tables=tuple(source.catalogue(fit, declared)),
        placeholder=_PLACEHOLDER,
        password=secret_of(*place).placeholder,
        settings=settings,
    )
    found += _refusal(lambda: source.properties(capture))
    begun: list[SourceEntry | None] = []
    if place[0].registry.exists():
        known = Registry(place[0].registry)
        found += _refusal(lambda: begun.append(begun_source(known, capture.source)))
    for entry in filter(None, begun):
        if not is_same_source(entry, source, wanted, keys or {}, settings, some=True):
            found.append(Finding.refused(source_exists(entry.name)))
    return [*found, *_installation(place[0], source, capture, is_begun=any(begun))]


def _installation(context: Context, source: Source, capture: Capture, *, is_begun: bool) -> Iterator[Finding]:
    """Yield what the installation has against a source of this name, or for one whose ``add`` was killed."""
    try:
        with Connect(context.connect_url) as connect:
            plugins = connect.plugins()
            yield from missing(plugins)
            yield from _refusal(lambda: refuse_without(plugins, source.connector_class))
            kafka = Kafka(context.kafka_bootstrap)
            taken: list[Finding] = []
            if not is_begun and not is_remains(connect, capture):
                taken = _refusal(lambda: refuse_taken(connect, kafka, source, capture, patience_s=0))
            yield from taken
            if not any(one.code == "SOURCE_TOPIC_SHARED" for one in taken):  # Kafka would refuse the same
                yield from _refusal(lambda: kafka.create(topics_of(capture), only_ask=True))
    except HeadraceError as error:
        yield _said(error)


def is_remains(connect: Connect, capture: Capture) -> bool:
    """Return whether Connect has a connector that a killed ``add`` of ours has left.

    It is ours when it reads its password from the file that we keep for a source of this name.
    """
    return connect.config(capture.connector).get("database.password") == capture.password


def refuse_taken(
    connect: Connect, kafka: Kafka, source: Source, capture: Capture, *, patience_s: float
) -> None:
    """Refuse what has the source's names already: a connector, a slot, topics with records.

    Args:
        connect: The worker.
        kafka: The broker.
        source: The database.
        capture: What is to be added.
        patience_s: How long to wait until Connect has forgotten a connector that was deleted.

    Raises:
        SourceError: ``CONNECTOR_EXISTS``, ``SOURCE_TOPIC_SHARED``, ``SOURCE_TOPICS_EXIST``,
            ``SOURCE_SLOT_TAKEN``.
    """
    deadline = time.monotonic() + patience_s
    while (known := connect.state(capture.connector).connector) != "ABSENT" and time.monotonic() < deadline:
        time.sleep(0.2)
    if known != "ABSENT":
        raise SourceError(
            f"Connect runs a connector {capture.connector} that is not ours.",
            code="CONNECTOR_EXISTS",
            hint="Choose another source name.",
        )
    fresh = [capture.topic(schema.table) for schema in capture.tables]
    refuse_used(kafka, [topic.name for topic in topics_of(capture)], fresh)
    source.refuse_taken(capture)


def _refusal(attempt: Callable[[], object]) -> list[Finding]:
    """Return as a finding what an attempt that changes nothing is refused for."""
    try:
        attempt()
    except HeadraceError as error:
        return [_said(error)]
    return []


def _said(error: HeadraceError) -> Finding:
    return Finding.refused(error)
