"""What the local stack tells to do is done as it is printed, from the state that prints it."""

from __future__ import annotations

import re
import shlex
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli import home as cli_home
from headrace.cli.main import app
from headrace.control.kafka import Kafka, Topic
from headrace.local import launch, ports, starter
from headrace.local.home import Home
from headrace.local.stack import SERVERS, Stack
from headrace.model.errors import SourceError
from headrace.observe import pidfile
from spark_jobs.peek import KafkaPeek
from tests.support.remedy import carry_out
from tests.support.stack import fresh_home, running_stack

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget at the end which home a command was told."""
    monkeypatch.setenv("HEADRACE_HOME", "/nowhere")
    monkeypatch.setattr(cli_home, "_named", [])


def refused(command: str) -> tuple[str, str]:
    """Run a command that fails; return its code and its hint."""
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    found = re.search(r"error \[(\w+)\].*?^hint: (.*)", done.stderr, re.DOTALL | re.MULTILINE)
    assert done.exit_code != 0, done.output
    assert found is not None, done.output
    return found[1], found[2].strip()


def paste(command: str) -> None:
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, f"{command}: {done.output}"


def commands(hint: str) -> list[str]:
    return [found.strip() for found in re.findall(r"\bheadrace [^`;]+", hint)]


def pids(home: Home, *names: str) -> dict[str, int | None]:
    return {name: pidfile.alive(home.pidfile(name)) for name in names}


def assert_up(home: Home) -> None:
    assert {server.name: server.state for server in Stack(home).status()} == {
        server.name: "running" for server in SERVERS
    }
    assert refused(f"headrace lag --home {home.root}")[0] == "NO_SOURCE"


def test_from_no_stack_by_way_of_a_full_disk_and_slow_servers_to_one_that_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step is the command that the one before it told."""
    with fresh_home() as home:
        code, hint = refused(f"headrace lag --home {home.root}")
        assert code == "STACK_ABSENT"
        (up,) = commands(hint)
        with monkeypatch.context() as full:
            full.setattr(launch, "MINIMUM_FREE_BYTES", 1 << 60)
            assert refused(up)[0] == "STACK_DISK_FULL"
        code, hint = refused(f"headrace lag --home {home.root}")
        assert code == "STACK_NOT_UP"
        (up,) = commands(hint)
        with monkeypatch.context() as slow:
            slow.setattr(starter, "_BOOT_SECONDS", 0.2)
            code, hint = refused(up)
        assert code == "STACK_SERVER_SLOW"
        before = pids(home, "kafka", "elasticsearch")
        assert None not in before.values()
        (up,) = commands(hint)
        # Whoever was late is waited for as long as at its start, not as one that hangs.
        monkeypatch.setattr(starter, "_ANSWER_SECONDS", 0.0)
        paste(up)
        assert pids(home, *before) == before
        assert not list(home.run.glob("*.late"))
        assert_up(home)


def test_a_port_that_is_taken_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_home() as home:
        paste(f"headrace up --home {home.root}")
        paste(f"headrace down --home {home.root}")
        before = ports.load_ports(home.ports_file)
        assert before is not None
        with socket.socket() as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stranger.bind((ports.HOST, before["redis"]))
            stranger.listen()
            code, hint = refused(f"headrace up --home {home.root}")
            assert code == "STACK_PORT_TAKEN"
            down, up = commands(hint)
            paste(down)
            (told,) = re.findall(r"delete (\S+) and", hint)
            Path(told).unlink()
            paste(up)
            after = ports.load_ports(home.ports_file)
            assert after is not None
            assert set(after.values()).isdisjoint({before["redis"]})
            assert_up(home)


def test_a_kafka_that_does_not_tell_what_stands_in_a_topic() -> None:
    """The engine asks it so after a truncate, and after a repeat of what was removed."""
    with running_stack(only={"kafka"}) as running:
        home, bootstrap = running.home, running.endpoints.kafka_bootstrap
        Kafka(bootstrap).create([Topic("told", 1, {})])
        peek = KafkaPeek(bootstrap, "asking")
        assert peek.beginning("told", 0) == 0
        pidfile.stop(home.pidfile("kafka"), grace=30.0)
        with pytest.raises(SourceError) as caught:
            peek.beginning("told", 0)
        assert (caught.value.code, caught.value.hint) == ("KAFKA_UNREADABLE", "headrace status")
        shown = carry_out(caught.value.hint, home.root, lambda _: None)
        (up,) = re.findall(r"`(headrace [^`]+)`", shown)
        carry_out(up, home.root, lambda _: None)
        assert peek.beginning("told", 0) == 0
