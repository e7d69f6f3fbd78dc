"""Asks the source for values that its connector may have lost, on behalf of a pipeline."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from connectors.base import Source
from connectors.registry import build
from headrace.config.pipeline import OriginSpec
from headrace.config.secrets import SecretRef
from headrace.model.errors import SinkError, SourceError
from headrace.model.key import Key
from headrace.model.schema import TableSchema

__all__ = ["ask"]

_sources: dict[Path, tuple[tuple[OriginSpec, str], Source]] = {}
_lock = threading.Lock()


def ask(
    origin: OriginSpec | None,
    schema: TableSchema,
    keys: Sequence[Key],
    columns: Sequence[str],
    seen: Collection[int],
) -> Mapping[Key, Mapping[str, Any]]:
    """Return what the source has under the keys; see :data:`connectors.doubt.Ask`.

    Raises:
        SinkError: When it does not answer (``VALUE_IN_DOUBT``); the table waits until it does.
    """
    named = ", ".join(columns)
    if origin is None:
        raise SinkError(
            f"Values of {schema.table} ({named}) are in doubt, and the pipeline does not say whom to ask.",
            code="VALUE_IN_DOUBT",
            hint="headrace sink resume SINK",
            table=schema.table,
        )
    try:
        source = _source(origin, SecretRef(origin.secret, "password").read())
        return source.lookup(schema, keys, columns, seen)
    except (SourceError, OSError, KeyError) as error:
        raise SinkError(
            f"Values of {schema.table} ({named}) are in doubt, and the database does not tell them now.",
            code="VALUE_IN_DOUBT",
            hint="headrace source show SOURCE",
            table=schema.table,
        ) from error


def _source(origin: OriginSpec, password: str) -> Source:
    """Return the source, the same each time; one that was reached otherwise before keeps no connection."""
    how = origin, password
    with _lock:
        known = _sources.get(origin.secret)
        if known is not None and known[0] == how:
            return known[1]
        source = build(origin.kind, origin.address, password)
        _sources[origin.secret] = how, source
    if known is not None:
        known[1].close()
    return source
