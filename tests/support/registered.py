"""An installation that has a source in its registry and nothing else of its own running."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.config.source import SourceSettings
from headrace.control.capture import capture_of, secret_of
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.model.schema import TableId
from tests.support.entries import source_entry

__all__ = ["lonely", "register"]


def lonely(place: Path) -> Context:
    """Return an installation whose Connect and Kafka do not answer."""
    places = {name: place / name for name in Context.__dataclass_fields__ if name != "engine"}
    words = {"connect_url": "http://127.0.0.1:9", "kafka_bootstrap": "127.0.0.1:9"}
    return Context(**{**places, **words}, engine=lambda: None)  # type: ignore[arg-type, return-value]


def register(
    context: Context, name: str, dsn: str, *tables: TableId, leave_out: Sequence[tuple[str, str, str]] = ()
) -> Capture:
    """Note a source that captures these tables and has been loaded, and set it up in its database."""
    settings = SourceSettings(leave_out=tuple(leave_out))
    source = PostgresSource(dsn, leave_out=settings.columns_left_out)
    kept = settings.model_dump(mode="json", include={"leave_out"})
    entry = source_entry(name, source.catalogue(tables), address=dsn, loaded_ms=1, settings=kept)
    secret_of(context, name).store(source.password)
    with Registry(context.registry).begin() as session:
        session.add(entry)
    capture = capture_of(context, Registry(context.registry).source(name))
    source.setup(capture)
    return capture
