"""Servers of one's own that encrypt: Kafka and Connect take nobody in the clear, and the chain goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.control.connect import Connect
from headrace.control.kafka import Kafka
from headrace.control.runner import stop_engine
from headrace.local.credentials import USER, Credentials
from headrace.local.home import Home
from headrace.local.kafka import client_properties
from headrace.local.ports import load_ports
from headrace.model.errors import StackError
from headrace.observe import pidfile
from tests.support.certificate import self_signed
from tests.support.database import fresh_database
from tests.support.patience import WAIT_S
from tests.support.stack import RunningStack, running_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(900)]

HEADRACE = str(Path(sys.executable).with_name("headrace"))
PASSWORD = "sealed"
KINDS = ("elasticsearch", "redis", "delta")


@dataclass(frozen=True, slots=True)
class Encrypted:
    """A stack whose Kafka and Connect encrypt, and the variables by which commands are told of them."""

    running: RunningStack
    environment: Mapping[str, str]

    def headrace(self, *words: str) -> Any:
        """Return what a command prints."""
        done = self._run(*words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refused(self, *words: str, **other: str) -> Any:
        """Return the error that a command ends with, under some other variables."""
        done = self._run(*words, **other)
        assert done.returncode != 0, done.stdout
        return json.loads(done.stderr.splitlines()[-1])["error"]

    def _run(self, *words: str, **other: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [HEADRACE, *words, "--json"],
            env={**os.environ, **self.environment, **other},
            capture_output=True,
            text=True,
            timeout=2 * WAIT_S,
            check=False,
        )


@pytest.fixture(scope="module")
def encrypted() -> Iterator[Encrypted]:
    with running_stack() as running, tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        server = psutil.Process(pidfile.alive(running.home.pidfile("kafka"))).uids().real
        authority = folder / "authority.pem"
        self_signed(folder / "key.pem", authority, "127.0.0.1", store=(folder / "server.p12", PASSWORD))
        both = (folder / "key.pem").read_text() + authority.read_text()
        private(folder / "server.pem", both, server)
        os.chown(folder / "server.p12", server, -1)
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority)}
        started: list[subprocess.Popen[bytes]] = []
        try:
            stopped = stop(running.home, "connect")
            kafka = stop(running.home, "kafka")
            started.append(again(running.home, kafka, lambda text: broker(text, folder, trust)))
            told = environment(running.home, folder, trust)
            address = f"{told['HEADRACE_KAFKA_BOOTSTRAP']};{told['HEADRACE_KAFKA_PROPERTIES']}"
            until(lambda: answers(lambda: Kafka(address).names()))
            started.append(again(running.home, stopped, lambda text: worker(text, folder, trust)))
            with Connect(f"{told['HEADRACE_CONNECT_URL']};{told['HEADRACE_CONNECT_CA']}") as connect:
                until(lambda: answers(lambda: connect.config("none")))
            yield Encrypted(running, told)
        finally:
            stop_engine(running.home.run)
            for process in reversed(started):
                process.terminate()
                process.wait(WAIT_S)


def answers(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except StackError:
        return False
    return True


def lines(settings: Mapping[str, str], prefix: str = "") -> str:
    return "".join(f"{prefix}{name}={value}\n" for name, value in settings.items())


def private(path: Path, text: str, owner: int) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    os.chown(path, owner, -1)
    return path


def broker(text: str, folder: Path, trust: Mapping[str, str]) -> str:
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(folder / "server.pem")}
    return text.replace("CLIENTS:SASL_PLAINTEXT", "CLIENTS:SASL_SSL") + lines({**own, **trust})


def worker(text: str, folder: Path, trust: Mapping[str, str]) -> str:
    doors = {"keystore.location": str(folder / "server.p12"), "keystore.type": "PKCS12"}
    doors |= {"keystore.password": PASSWORD, "key.password": PASSWORD}
    text = text.replace("SASL_PLAINTEXT", "SASL_SSL").replace("listeners=http:", "listeners=https:")
    text += lines(doors, "listeners.https.ssl.") + "rest.advertised.listener=https\n"
    return text + "".join(lines(trust, prefix) for prefix in ("", "producer.", "consumer.", "admin."))


@dataclass(frozen=True, slots=True)
class Stopped:
    """A server that was stopped: how it was started, and by whom."""

    name: str
    command: list[str]
    user: int
    group: int


def stop(home: Home, name: str) -> Stopped:
    process = psutil.Process(pidfile.alive(home.pidfile(name)))
    stopped = Stopped(name, process.cmdline(), process.uids().real, process.gids().real)
    process.terminate()
    process.wait(WAIT_S)
    return stopped


def again(home: Home, server: Stopped, change: Callable[[str], str]) -> subprocess.Popen[bytes]:
    """Start a server with other settings."""
    place = Path(server.command[-1])
    private(place.with_name("tls.properties"), change(place.read_text()), server.user)
    who: dict[str, Any] = {"user": server.user, "group": server.group, "extra_groups": []}
    with (home.logs / f"{server.name}-tls.log").open("wb") as log:
        process = subprocess.Popen(
            [*server.command[:-1], str(place.with_name("tls.properties"))],
            stdout=log,
            stderr=log,
            cwd="/",
            **(who if os.geteuid() == 0 else {}),
        )
    pidfile.write(home.pidfile(server.name), process.pid)
    return process


def environment(home: Home, folder: Path, trust: Mapping[str, str]) -> dict[str, str]:
    ports, known = load_ports(home.ports_file), Credentials.load(home.root)
    assert ports is not None
    assert known is not None
    given = client_properties(known.kafka) | {"security.protocol": "SASL_SSL", **trust}
    properties = private(folder / "client.properties", lines(given), os.geteuid())
    return {
        "HEADRACE_HOME": str(home.root),
        "HEADRACE_KAFKA_BOOTSTRAP": f"127.0.0.1:{ports['kafka']}",
        "HEADRACE_KAFKA_PROPERTIES": str(properties),
        "HEADRACE_CONNECT_URL": f"https://{USER}:{known.connect}@127.0.0.1:{ports['connect']}",
        "HEADRACE_CONNECT_CA": str(folder / "authority.pem"),
    }


def test_nobody_is_let_in_in_the_clear(encrypted: Encrypted) -> None:
    at = encrypted.environment
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": at["HEADRACE_KAFKA_BOOTSTRAP"],
        "log_level": 0,
    }
    with pytest.raises(KafkaException):
        AdminClient({**settings, "security.protocol": "SASL_PLAINTEXT"}, logger=None).list_topics(timeout=3)
    with pytest.raises(httpx.TransportError):
        httpx.get(at["HEADRACE_CONNECT_URL"].replace("https:", "http:"), timeout=10)


def test_changes_get_through_encrypted_servers_into_every_store(encrypted: Encrypted) -> None:
    stores = encrypted.running.endpoints
    with fresh_database(stores.postgres_dsn, "sealed") as database:
        database.run(
            "CREATE TABLE letters (id int PRIMARY KEY, text text)",
            "INSERT INTO letters SELECT i, 'l' || i FROM generate_series(1, 3000) i",
        )
        added = encrypted.headrace("source", "add", "sealed", database.dsn)
        assert added["state"] == "streaming"
        for kind in KINDS:
            encrypted.headrace("sink", "add", f"sealed{kind}", "--kind", kind, "--source", "sealed")
        database.run(
            "UPDATE letters SET text = 'opened' WHERE id % 2 = 0", "DELETE FROM letters WHERE id = 7"
        )
        assert encrypted.headrace("resnapshot", "sealed", "public.letters")["state"] == "completed"
        assert encrypted.headrace("lag", "--wait", "120")["in_sync"]
        with redis.Redis.from_url(stores.redis_url) as cache:
            assert len(list(cache.scan_iter("sealed:letters:*", count=1000))) == 2_999
        with httpx.Client(base_url=stores.elasticsearch_url) as search:
            search.post("/sealed-public-letters/_refresh")
            counted = search.get("/sealed-public-letters/_count?q=text:opened").json()["count"]
        assert counted == 1_500
        for kind in KINDS:
            encrypted.headrace("sink", "remove", f"sealed{kind}", "--purge")
        encrypted.headrace("source", "remove", "sealed")


def test_who_trusts_nobody_or_others_is_told_what_to_set(encrypted: Encrypted, tmp_path: Path) -> None:
    self_signed(tmp_path / "key", tmp_path / "others.pem", "127.0.0.1")
    properties = Path(encrypted.environment["HEADRACE_KAFKA_PROPERTIES"]).read_text()
    authority = encrypted.environment["HEADRACE_CONNECT_CA"]
    (tmp_path / "others").write_text(properties.replace(authority, str(tmp_path / "others.pem")))
    none = str(tmp_path / "none.pem")
    with fresh_database(encrypted.running.endpoints.postgres_dsn, "untold") as database:
        database.run("CREATE TABLE letters (id int PRIMARY KEY)")
        for name, value, code in (
            ("HEADRACE_CONNECT_CA", "", "CONNECT_UNREACHABLE"),
            ("HEADRACE_CONNECT_CA", str(tmp_path / "others.pem"), "CONNECT_UNREACHABLE"),
            ("HEADRACE_CONNECT_CA", none, "CONNECT_CA_INVALID"),
            ("HEADRACE_KAFKA_PROPERTIES", "", "KAFKA_UNREACHABLE"),
            ("HEADRACE_KAFKA_PROPERTIES", str(tmp_path / "others"), "KAFKA_UNREACHABLE"),
        ):
            said = encrypted.refused("source", "add", "untold", database.dsn, **{name: value})
            assert said["code"] == code, said
            assert name in said["hint"], said
