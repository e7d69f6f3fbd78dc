"""Where the servers of one stack are reached."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.local.credentials import USER, Credentials
from headrace.local.home import Home
from headrace.local.ports import HOST, load_ports
from headrace.model.errors import StackError

__all__ = ["DATABASE", "OF_THIS_ONE", "SUPERUSER", "Endpoints", "endpoints_of", "postgres_dsn"]

OF_THIS_ONE: dict[str, Any] = {
    "channel_binding": "disable",
    "gssencmode": "disable",
    "hostaddr": HOST,
    "sslmode": "disable",
}
"""How libpq reaches the local Postgres, whatever the environment says of servers elsewhere."""

SUPERUSER = "postgres"
DATABASE = "postgres"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of one stack, the same for its whole life.

    Attributes:
        postgres_dsn: ``postgresql://…`` of a superuser, password included.
        kafka_bootstrap: ``host:port;path``, see :class:`headrace.config.kafka.KafkaAddress`.
        connect_url: Kafka Connect's REST API, password included, as in those that follow.
        elasticsearch_url: Elasticsearch's REST API.
        redis_url: ``redis://…``.
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


def postgres_dsn(port: int, password: str) -> str:
    """Return the connection URL of the local Postgres' superuser."""
    return f"postgresql://{SUPERUSER}:{password}@{HOST}:{port}/{DATABASE}"


def endpoints_of(home: Home) -> Endpoints:
    """Return the addresses of a stack's servers, whether or not they run now.

    Raises:
        StackError: ``STACK_NOT_UP``: this stack was never started.
    """
    ports = load_ports(home.ports_file)
    credentials = Credentials.load(home.root)
    if ports is None or credentials is None or not home.exists():
        raise StackError(
            f"There is no stack at {home.root}.",
            code="STACK_NOT_UP",
            hint="Run `headrace up`, or name another home with --home or HEADRACE_HOME.",
        )
    return Endpoints(
        postgres_dsn=postgres_dsn(ports["postgres"], credentials.postgres),
        kafka_bootstrap=f"{HOST}:{ports['kafka']};{home.kafka_properties}",
        connect_url=f"http://{USER}:{credentials.connect}@{HOST}:{ports['connect']}",
        elasticsearch_url=f"http://{USER}:{credentials.elasticsearch}@{HOST}:{ports['elasticsearch']}",
        redis_url=f"redis://{USER}:{credentials.redis}@{HOST}:{ports['redis']}/0",
        lake_path=home.lake,
    )
