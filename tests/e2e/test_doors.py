"""Doors: every local server asks for a password and is not root, and the engine has none."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator

import httpx
import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.config.kafka import KafkaAddress
from headrace.control.context import Context
from headrace.control.runner import engine_state, ensure_engine
from headrace.local.credentials import Credentials
from headrace.local.ports import load_ports
from headrace.local.stack import SERVERS
from headrace.observe import pidfile
from tests.support.patience import WAIT_S
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack


def processes(stack: RunningStack) -> Iterator[tuple[str, psutil.Process]]:
    for server in SERVERS:
        pid = pidfile.alive(stack.home.pidfile(server.name))
        assert pid is not None
        one = psutil.Process(pid)
        for process in (one, *one.children(recursive=True)):
            yield server.name, process


@pytest.fixture
def ports(stack: RunningStack) -> dict[str, int]:
    found = load_ports(stack.home.ports_file)
    assert found is not None
    return found


PATHS = {
    "elasticsearch": [
        ("GET", "/"),
        ("GET", "/_cat/indices"),
        ("PUT", "/stolen"),
        ("POST", "/_bulk"),
        ("GET", "/no"),
    ],
    "connect": [("GET", "/"), ("GET", "/connectors"), ("POST", "/connectors"), ("GET", "/connector-plugins")],
}


@pytest.mark.parametrize("login", [None, ("headrace", "wrong"), ("", "")])
@pytest.mark.parametrize("server", PATHS)
def test_http_asks_for_the_password(
    ports: dict[str, int], server: str, login: tuple[str, str] | None
) -> None:
    for method, path in PATHS[server]:
        content = b"{}" if method != "GET" else None
        # Each on a connection of its own: a server may close one of which it has refused the body.
        url = f"http://127.0.0.1:{ports[server]}{path}"
        answer = httpx.request(method, url, content=content, auth=login, timeout=WAIT_S)
        assert answer.status_code == 401, (method, path, answer.text)


def test_what_workers_ask_of_each_other_is_signed(ports: dict[str, int]) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{ports['connect']}", timeout=WAIT_S) as client:
        for method, path, body in (
            ("POST", "/connectors/x/tasks", b"[]"),
            ("PUT", "/connectors/x/fence", b""),
        ):
            answer = client.request(method, path, content=body, headers={"content-type": "application/json"})
            assert answer.status_code in (400, 403), answer.text


def test_redis_asks_for_the_password_and_gives_nobody_its_settings(stack: RunningStack) -> None:
    known = Credentials.load(stack.home.root)
    ports = load_ports(stack.home.ports_file)
    assert known
    assert ports

    def say(*lines: str) -> list[bytes]:
        with socket.create_connection(("127.0.0.1", ports["redis"]), timeout=WAIT_S) as connection:
            answers = []
            for line in lines:
                connection.sendall(f"{line}\r\n".encode())
                answers.append(connection.recv(4096))
            return answers

    assert say("PING")[0].startswith(b"-NOAUTH")
    assert say("AUTH headrace wrong")[0].startswith(b"-WRONGPASS")
    for command in (
        "CONFIG GET dir",
        "DEBUG JMAP",
        "REPLICAOF 127.0.0.1 1",
        "MODULE LIST",
        "SHUTDOWN NOSAVE",
    ):
        accepted, refused = say(f"AUTH headrace {known.redis}", command)
        assert (accepted, refused[:7]) == (b"+OK\r\n", b"-NOPERM"), command


@pytest.mark.parametrize("listener", ["kafka", "kafka_controller"])
@pytest.mark.parametrize("how", ["without", "wrong"])
def test_kafka_asks_for_the_password(ports: dict[str, int], listener: str, how: str) -> None:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": f"127.0.0.1:{ports[listener]}",
        "log_level": 0,
    }
    if how == "wrong":
        settings |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        settings |= {"sasl.username": "headrace", "sasl.password": "wrong"}
    with pytest.raises(KafkaException):
        AdminClient(settings, logger=None).list_topics(timeout=3)


def test_kafka_lets_those_in_whose_file_says_the_password(stack: RunningStack) -> None:
    address = KafkaAddress.parse(stack.endpoints.kafka_bootstrap)
    assert AdminClient(dict(address.librdkafka())).list_topics(timeout=WAIT_S).brokers
    assert address.properties is not None
    assert stat.S_IMODE(address.properties.stat().st_mode) == 0o600


def test_nothing_listens_but_on_loopback_and_on_the_known_ports(
    stack: RunningStack, ports: dict[str, int]
) -> None:
    open_ports = set()
    for name, process in processes(stack):
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip in ("127.0.0.1", "::ffff:127.0.0.1", "::1"), (name, connection)
                open_ports.add(connection.laddr.port)
    assert open_ports == {port for name, port in ports.items() if name != "elasticsearch_transport"}


def test_no_server_is_root_and_no_command_line_holds_a_password(stack: RunningStack) -> None:
    known = Credentials.load(stack.home.root)
    secrets = [getattr(known, name) for name in Credentials.__dataclass_fields__]
    for name, process in processes(stack):
        assert process.uids().effective != 0, name
        assert not any(secret in word for secret in secrets for word in process.cmdline()), name


def test_no_server_is_given_the_environment_of_who_starts_it(stack: RunningStack) -> None:
    """There may be secrets in it, or options that are meant for other programs."""
    needed = {"LANG", "LD_LIBRARY_PATH", "PATH", "TZ", "MALLOC_ARENA_MAX", "PYTHONPATH", "HEADRACE_ACCOUNT"}
    for name, process in processes(stack):
        given = {variable for variable in process.environ() if not variable.startswith("LC_")}
        assert given <= needed, name


def test_no_file_is_anybody_elses(stack: RunningStack) -> None:
    stack.home.root.chmod(0o777)
    for folder in (stack.home.pipelines, stack.home.lake, stack.home.logs):
        folder.chmod(0o777)
    stack.stack.up()
    on_the_way = {stack.home.root, stack.home.logs, stack.home.root / "data", stack.home.root / "config"}
    assert {stat.S_IMODE(folder.stat().st_mode) & ~0o011 for folder in on_the_way} == {0o700}
    # Whoever cannot enter a directory reaches nothing in it, whatever the modes there are.
    reached = [path for folder in on_the_way for path in folder.iterdir() if path not in on_the_way]
    assert not [f"{path} {path.stat().st_mode:o}" for path in reached if path.stat().st_mode & 0o077]


@pytest.mark.deep
def test_the_engine_opens_no_door(stack: RunningStack, context: Context) -> None:
    """Nothing of our own listens but on loopback, and nothing that listens speaks HTTP."""
    ensure_engine(context)
    until(lambda: engine_state(context.progress)["state"] == "ready")
    guardian = pidfile.alive(context.run / "engine.pid")
    assert guardian is not None
    ours = [psutil.Process(guardian), *psutil.Process(guardian).children(recursive=True)]
    assert len(ours) >= 3  # the guardian, the driver and its Java
    listening = [
        (process.name(), connection.laddr)
        for process in ours
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {address.ip.removeprefix("::ffff:") for _, address in listening} <= {"127.0.0.1", "::1"}
    for _, address in listening:
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{address.port}/", timeout=3)
