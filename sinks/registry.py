"""Which kinds of sink exist; each is imported on first use, so its client library is too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, get_args

from pydantic import SecretStr, TypeAdapter, ValidationError

from headrace.config.references import resolved
from headrace.model.errors import UsageError
from sinks.base import Sink

__all__ = ["KINDS", "OFFERED", "build", "config_model", "secret_names", "setting_of"]

KINDS: dict[str, str] = {
    "memory": "sinks.memory:MemorySink",
    "elasticsearch": "sinks.elasticsearch:ElasticsearchSink",
    "redis": "sinks.redis:RedisSink",
    "delta": "sinks.delta:DeltaSink",
}


OFFERED = tuple(kind for kind in KINDS if kind != "memory")
"""The kinds that a person may choose; the other one lives as long as its process."""


def _load(kind: str) -> Any:
    try:
        module, _, name = KINDS[kind].partition(":")
    except KeyError:
        close = get_close_matches(kind, OFFERED, 1)
        meant = f"Did you mean {close[0]}? " if close else ""
        raise UsageError(
            f"There is no sink kind “{kind}”.",
            code="SINK_KIND_UNKNOWN",
            hint=f"{meant}Kinds: {', '.join(OFFERED)}.",
        ) from None
    return getattr(import_module(module), name)


def config_model(kind: str) -> Any:
    """Return the pydantic model of the kind's settings."""
    return _load(kind).Config


def secret_names(kind: str) -> frozenset[str]:
    """Return the names of the kind's settings that are secrets."""
    fields = config_model(kind).model_fields.items()
    return frozenset(
        name for name, field in fields if SecretStr in (field.annotation, *get_args(field.annotation))
    )


def setting_of(kind: str, name: str, text: str) -> Any:
    """Return the value that a person writes as ``text`` for a setting.

    A setting that takes texts gets it as it stands: a user name or a prefix of digits is no number. For
    others, and for names that are no setting of the kind, it is JSON where it can be. A policy of one column,
    ``unheld.<schema>.<table>.<column>``, is read as that of all: ``null`` is its name.
    """
    field = config_model(kind).model_fields.get("unheld" if name.startswith("unheld.") else name)
    if field is not None and not (text == "null" and type(None) in get_args(field.annotation)):
        try:
            value = TypeAdapter(field.annotation).validate_python(text)
        except ValidationError:
            pass
        else:
            return value if isinstance(value, (bool, int, float)) else text
    try:
        return json.loads(text)
    except ValueError:
        return text


def build(kind: str, name: str, settings: Mapping[str, Any]) -> Sink:
    """Build the sink ``name`` of ``kind`` from its settings; connects lazily.

    Raises:
        UsageError: When the kind is unknown (``SINK_KIND_UNKNOWN``) or a secret that the settings name is
            not there (``SECRET_MISSING``).
    """
    cls = _load(kind)
    sink: Sink = cls(name, cls.Config(**resolved(settings, secret_names(kind))))
    return sink
