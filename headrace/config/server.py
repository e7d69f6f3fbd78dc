"""Where the servers are when they are not the local stack's: environment variables ``HEADRACE_…``."""

from __future__ import annotations

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict

__all__ = ["ServerSettings"]


class ServerSettings(BaseSettings):
    """Addresses taken from the environment; what is None comes from the local stack.

    Args:
        home: ``HEADRACE_HOME``, the data directory.
        connect_url: ``HEADRACE_CONNECT_URL``.
        kafka_bootstrap: ``HEADRACE_KAFKA_BOOTSTRAP``.
        postgres_dsn: ``HEADRACE_POSTGRES_DSN``, the default source database.
        elasticsearch_url: ``HEADRACE_ELASTICSEARCH_URL``.
        redis_url: ``HEADRACE_REDIS_URL``.
        lake_path: ``HEADRACE_LAKE_PATH``.
    """

    model_config = SettingsConfigDict(env_prefix="HEADRACE_", extra="ignore", frozen=True)

    home: Path | None = None
    connect_url: str | None = None
    kafka_bootstrap: str | None = None
    postgres_dsn: str | None = None
    elasticsearch_url: str | None = None
    redis_url: str | None = None
    lake_path: str | None = None
