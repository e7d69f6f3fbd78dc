"""The local stack keeps its promises: idempotent, repaired one by one, side by side, gone after `down`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.config.kafka import KafkaAddress
from headrace.local import ports
from headrace.local.endpoints import Endpoints
from headrace.local.events import StackEvent
from headrace.local.home import Home
from headrace.local.stack import SERVERS, Stack
from headrace.model.errors import EnvironmentError_, StackError
from headrace.observe import pidfile
from tests.support.patience import LEAST_S, PATIENCE, WAIT_S
from tests.support.stack import RunningStack, fresh_home, running_stack
from tests.support.waiting import until

pytestmark = pytest.mark.stack

NAMES = [server.name for server in SERVERS]


def pids(stack: Stack) -> dict[str, int | None]:
    return {server.name: pidfile.alive(stack.home.pidfile(server.name)) for server in SERVERS}


def states(stack: Stack) -> dict[str, str]:
    return {server.name: server.state for server in stack.status()}


def redis(url: str, *words: str) -> bytes:
    place = urlsplit(url)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=WAIT_S) as connection:
        connection.sendall(f"AUTH {place.username} {place.password}\r\n".encode())
        assert connection.recv(4096) == b"+OK\r\n"
        connection.sendall((" ".join(words) + "\r\n").encode())
        return connection.recv(4096)


def kafka(at: Endpoints) -> dict[str, Any]:
    return dict(KafkaAddress.parse(at.kafka_bootstrap).librdkafka())


def processes_of(home: Home) -> list[str]:
    """Every living process that mentions a home or works in it."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), process.cwd()]
            if process.pid != os.getpid() and any(str(home.root) in word for word in words):
                found.append(" ".join(words)[:200])
        except psutil.Error:
            continue
    return found


def leave_a_trace(at: Endpoints) -> None:
    with psycopg.connect(at.postgres_dsn) as connection:
        connection.execute("create table if not exists trace (id int primary key)")
        connection.execute("insert into trace values (1) on conflict do nothing")
    admin = AdminClient(kafka(at))
    for future in admin.create_topics([NewTopic("trace", 1, 1)]).values():
        future.exception()
    producer = Producer({**kafka(at), "acks": "all"})
    producer.produce("trace", b"1")
    assert producer.flush(20) == 0
    url = f"{at.elasticsearch_url}/trace/_doc/1"
    httpx.put(url, json={"a": 1}, timeout=WAIT_S).raise_for_status()
    assert redis(at.redis_url, "SET", "trace", "1") == b"+OK\r\n"


def trace_is_there(at: Endpoints) -> None:
    with psycopg.connect(at.postgres_dsn) as connection:
        assert connection.execute("select id from trace").fetchall() == [(1,)]
    assert "trace" in AdminClient(kafka(at)).list_topics(timeout=WAIT_S).topics
    assert httpx.get(f"{at.elasticsearch_url}/trace/_doc/1", timeout=WAIT_S).json()["_source"] == {"a": 1}
    assert redis(at.redis_url, "GET", "trace") == b"$1\r\n1\r\n"
    assert httpx.get(f"{at.connect_url}/connectors", timeout=WAIT_S).json() == []


def test_up_twice_changes_nothing(stack: RunningStack) -> None:
    before = pids(stack.stack)
    assert None not in before.values()
    events: list[StackEvent] = []
    assert stack.stack.up(events.append) == stack.endpoints
    assert {event.server: event.state for event in events} == dict.fromkeys(NAMES, "running")
    assert pids(stack.stack) == before


def test_postgres_is_ready_for_logical_decoding(stack: RunningStack) -> None:
    with psycopg.connect(stack.endpoints.postgres_dsn) as connection:
        rows = connection.execute("select name, setting from pg_settings").fetchall()
    settings: dict[str, str] = dict(rows)
    assert settings["wal_level"] == "logical"
    assert int(settings["max_replication_slots"]) >= 10
    assert int(settings["max_wal_senders"]) >= 10
    assert settings["listen_addresses"] == "127.0.0.1"
    wrong = stack.endpoints.postgres_dsn.replace("@", "x@", 1)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(wrong)


def test_connect_has_debezium(stack: RunningStack) -> None:
    plugins = httpx.get(f"{stack.endpoints.connect_url}/connector-plugins", timeout=WAIT_S).json()
    versions = {plugin["class"]: plugin["version"] for plugin in plugins}
    assert versions["io.debezium.connector.postgresql.PostgresConnector"] == "3.7.0.Final"


@pytest.mark.deep
def test_each_server_killed_is_repaired_alone(stack: RunningStack) -> None:
    leave_a_trace(stack.endpoints)
    for name in NAMES:
        before = pids(stack.stack)
        victim = before[name]
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        until(lambda: pidfile.birth(victim) is None)  # noqa: B023
        assert states(stack.stack)[name] == "died"
        events: list[StackEvent] = []
        assert stack.stack.up(events.append) == stack.endpoints
        assert [event.server for event in events if event.state == "ready"] == [name]
        after = pids(stack.stack)
        assert after.pop(name) not in (None, before.pop(name))
        assert after == before
        assert set(states(stack.stack).values()) == {"running"}
    trace_is_there(stack.endpoints)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["postgres", "elasticsearch"])
def test_what_a_server_puts_in_the_way_has_nothing_of_others_overwritten(
    stack: RunningStack, tmp_path: Path, name: str
) -> None:
    """Root writes settings, and a server could have put a link to another file in their place."""
    others = tmp_path / "others"
    others.write_text("theirs")
    others.chmod(0o600)
    written = {
        "postgres": stack.home.data("postgres") / "headrace.conf",
        "elasticsearch": stack.home.log("elasticsearch"),
    }[name]
    pidfile.stop(stack.home.pidfile(name))
    kept = written.read_bytes()
    written.unlink()
    written.symlink_to(others)
    try:
        with suppress(StackError):
            stack.stack.up()
        # As an ordinary user Elasticsearch logs into whatever is there: the user's own.
        assert others.read_text() == "theirs" or (name == "elasticsearch" and os.geteuid() != 0)
    finally:
        written.unlink()
        written.write_bytes(kept)
        shutil.chown(written, written.parent.stat().st_uid, written.parent.stat().st_gid)
        stack.stack.up()


@pytest.mark.deep
def test_two_stacks_at_once_and_a_power_cut_of_one(stack: RunningStack) -> None:
    own = pids(stack.stack)
    with running_stack({"postgres", "redis", "kafka"}) as other:
        assert set(ports.load_or_pick(other.home.root / "ports.json").values()).isdisjoint(
            ports.load_or_pick(stack.home.root / "ports.json").values()
        )
        redis(stack.endpoints.redis_url, "SET", "whose", "first")
        redis(other.endpoints.redis_url, "SET", "whose", "other")
        assert redis(stack.endpoints.redis_url, "GET", "whose") == b"$5\r\nfirst\r\n"
        with psycopg.connect(other.endpoints.postgres_dsn) as connection:
            connection.execute("create table whose as select 2 as stack")

        for victim in (pid for pid in pids(other.stack).values() if pid is not None):
            os.kill(victim, signal.SIGKILL)
        assert other.stack.up(only={"postgres", "redis", "kafka"}) == other.endpoints
        with psycopg.connect(other.endpoints.postgres_dsn) as connection:
            assert connection.execute("select stack from whose").fetchall() == [(2,)]
        assert redis(other.endpoints.redis_url, "GET", "whose") == b"$5\r\nother\r\n"

        assert other.stack.down() == []
        assert processes_of(other.home) == []
        assert set(states(other.stack).values()) == {"stopped"}
    assert not other.home.root.exists()
    assert pids(stack.stack) == own
    assert set(states(stack.stack).values()) == {"running"}


def test_ports_are_kept_and_a_stranger_on_one_is_named() -> None:
    with fresh_home() as home:
        stack = Stack(home)
        first = stack.up(only={"redis"})
        stack.down()
        assert stack.up(only={"redis"}) == first
        stack.down()
        port = int(first.redis_url.rpartition(":")[2].partition("/")[0])
        with socket.socket() as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stranger.bind((ports.HOST, port))
            stranger.listen()
            with pytest.raises(EnvironmentError_) as caught:
                stack.up(only={"redis"})
            assert caught.value.code == "STACK_PORT_TAKEN"
            assert f"pid {os.getpid()}" in caught.value.message
            assert stack.down() == []
        assert stack.up(only={"redis"}) == first


def test_a_server_that_dies_at_its_start_says_why() -> None:
    with fresh_home() as home:
        stack = Stack(home)
        stack.up(only={"redis"})
        redis(stack.endpoints().redis_url, "SET", "a", "b")
        stack.down()
        log = home.data("redis") / "appendonly.aof"
        log.write_bytes(b"this is no append-only file\r\n" * 10)
        with pytest.raises(StackError) as caught:
            stack.up(only={"redis"})
        assert caught.value.code == "STACK_SERVER_DIED"
        assert "Bad file format" in caught.value.message
        assert str(home.log("redis")) in caught.value.hint


@pytest.mark.deep
def test_a_hanging_server_is_replaced() -> None:
    with fresh_home() as home:
        stack = Stack(home)
        stack.up(only={"redis"})
        pid = pids(stack)["redis"]
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        assert states(stack)["redis"] == "unresponsive"
        stack.up(only={"redis"})
        assert pids(stack)["redis"] not in (None, pid)


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_connect_outlasts_a_kafka_that_takes_its_time() -> None:
    """Connect itself waits for a minute, and ends then."""
    with fresh_home() as home, ThreadPoolExecutor(1) as pool:
        said: list[StackEvent] = []
        stack = Stack(home)
        broker, worker = home.pidfile("kafka"), home.pidfile("connect")
        up = pool.submit(stack.up, said.append, only={"kafka", "connect"})
        until(lambda: pidfile.alive(broker) is not None)
        os.kill(pid := pidfile.alive(broker) or 0, signal.SIGSTOP)
        until(lambda: pidfile.alive(worker) is not None)
        try:
            until(lambda: pidfile.alive(worker) is None)
        finally:
            os.kill(pid, signal.SIGCONT)
        try:
            up.result(2 * LEAST_S * PATIENCE)
            details = [event.detail for event in said if event.server == "connect"]
            assert any(detail.startswith("once more") for detail in details)
            assert states(stack)["connect"] == "running"
        finally:
            stack.down()


def test_the_engine_is_shown_and_stopped_first() -> None:
    with fresh_home() as home:
        stack = Stack(home)
        stack.up(only={"redis"})
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as engine:
            pidfile.write(home.pidfile("engine"), engine.pid)
            assert states(stack)["engine"] == "running"
            events: list[StackEvent] = []
            assert stack.down(on_event=events.append) == []
        assert [event.server for event in events] == ["engine", "redis"]


@pytest.mark.parametrize("account", [os.geteuid()])
def test_a_home_postgres_cannot_reach_is_refused(account: int) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as closed:
        stack = Stack(Home(Path(closed) / "home"))
        if account == 0:
            with pytest.raises(EnvironmentError_) as caught:
                stack.up(only={"postgres"})
            assert caught.value.code == "STACK_HOME_UNREACHABLE"
            assert closed in caught.value.message
        else:
            # Whoever is not root runs Postgres himself, in any directory of his own.
            assert stack.up(only={"postgres"}).postgres_dsn
        stack.down(purge=True)


def test_the_command_line_without_java_or_a_network() -> None:
    with fresh_home() as home:
        binaries = str(Path(sys.executable).parent)
        env = {"PATH": binaries, "HOME": os.environ["HOME"], "HEADRACE_HOME": str(home.root)}
        # Everything is in the cache by now; a network would not be asked.
        env["HEADRACE_MAVEN_MIRROR"] = "http://127.0.0.1:9/"
        env |= {name: os.environ[name] for name in ("HEADRACE_CACHE", "XDG_CACHE_HOME") if name in os.environ}

        def headrace(*words: str) -> dict[str, object]:
            command = [sys.executable, "-c", "from headrace.cli.main import run; run()", *words, "--json"]
            answer = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False
            )
            assert answer.returncode == 0, answer.stderr
            found: dict[str, object] = json.loads(answer.stdout)
            return found

        up = headrace("up", "--only", "kafka,redis")
        assert set(up["servers"]) == {"kafka", "redis"}  # type: ignore[call-overload]
        status = headrace("status")
        names = {
            "postgres_dsn",
            "kafka_bootstrap",
            "connect_url",
            "elasticsearch_url",
            "redis_url",
            "lake_path",
        }
        assert set(status["endpoints"]) == names  # type: ignore[call-overload]
        assert names <= set(status)
        assert {s["name"]: s["state"] for s in status["servers"]}["kafka"] == "running"  # type: ignore[attr-defined]
        down = headrace("down", "--purge")
        assert sorted(down["stopped"]) == ["kafka", "redis"]  # type: ignore[call-overload]
        assert not home.root.exists()
        assert processes_of(home) == []
