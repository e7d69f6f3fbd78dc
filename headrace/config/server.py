"""Where the servers are when they are not the local stack's: environment variables ``HEADRACE_…``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

__all__ = ["ServerSettings"]


class ServerSettings(BaseModel):
    """Addresses taken from the environment; what is None comes from the local stack.

    Args:
        home: ``HEADRACE_HOME``, the data directory.
        connect_url: ``HEADRACE_CONNECT_URL``.
        connect_ca: ``HEADRACE_CONNECT_CA``, a PEM file of the authorities that are trusted.
        kafka_bootstrap: ``HEADRACE_KAFKA_BOOTSTRAP``.
        kafka_properties: ``HEADRACE_KAFKA_PROPERTIES``, a file of client properties.
        postgres_dsn: ``HEADRACE_POSTGRES_DSN``, the default source database.
        elasticsearch_url: ``HEADRACE_ELASTICSEARCH_URL``.
        redis_url: ``HEADRACE_REDIS_URL``.
        lake_path: ``HEADRACE_LAKE_PATH``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    home: Path | None = None
    connect_url: str | None = None
    connect_ca: Path | None = None
    kafka_bootstrap: str | None = None
    kafka_properties: Path | None = None
    postgres_dsn: str | None = None
    elasticsearch_url: str | None = None
    redis_url: str | None = None
    lake_path: str | None = None

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> ServerSettings:
        """Return what the variables say; one that is empty says nothing."""
        named = {name: environment.get(f"HEADRACE_{name.upper()}") for name in cls.model_fields}
        return cls.model_validate({name: value for name, value in named.items() if value})
