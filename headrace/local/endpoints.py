"""Where the servers of one stack are reached."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Endpoints"]


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of one stack, the same for its whole life.

    Attributes:
        postgres_dsn: ``postgresql://…`` of a superuser, password included.
        kafka_bootstrap: ``host:port``.
        connect_url: Kafka Connect's REST API.
        elasticsearch_url: Elasticsearch's REST API.
        redis_url: ``redis://host:port/0``.
        lake_path: Directory under which Delta tables are kept.
    """

    postgres_dsn: str
    kafka_bootstrap: str
    connect_url: str
    elasticsearch_url: str
    redis_url: str
    lake_path: Path

    def as_dict(self) -> dict[str, str]:
        """Return the addresses as text by name, as ``headrace status --json`` prints them."""
        return {name: str(value) for name, value in asdict(self).items()}
