"""Which kinds of sink exist; each is imported on first use, so its client library is too."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, get_args

from pydantic import SecretStr

from headrace.config.references import resolved
from headrace.model.errors import UsageError
from sinks.base import Sink

__all__ = ["KINDS", "build", "config_model", "secret_names"]

KINDS: dict[str, str] = {
    "memory": "sinks.memory:MemorySink",
    "elasticsearch": "sinks.elasticsearch:ElasticsearchSink",
    "redis": "sinks.redis:RedisSink",
    "delta": "sinks.delta:DeltaSink",
}


def _load(kind: str) -> Any:
    try:
        module, _, name = KINDS[kind].partition(":")
    except KeyError:
        raise UsageError(
            f"There is no sink kind “{kind}”.", code="SINK_KIND_UNKNOWN", hint=f"Kinds: {', '.join(KINDS)}."
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


def build(kind: str, name: str, settings: Mapping[str, Any]) -> Sink:
    """Build the sink ``name`` of ``kind`` from its settings; connects lazily.

    Raises:
        UsageError: When the kind is unknown (``SINK_KIND_UNKNOWN``) or a secret that the settings name is
            not there (``SECRET_MISSING``).
    """
    cls = _load(kind)
    sink: Sink = cls(name, cls.Config(**resolved(settings, secret_names(kind))))
    return sink
