"""Homes, ports, pid files and Java: what a stack knows about itself and its machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.local import java, launch, ports
from headrace.local.aot import AotCache
from headrace.local.home import Home
from headrace.local.kafka import new_cluster_id
from headrace.local.stack import Stack
from headrace.model.errors import EnvironmentError_, StackError, UsageError
from headrace.observe import pidfile
from tests.support.waiting import until

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def started(code: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_pidfile_knows_the_process_it_was_written_for(tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.pid"
    assert pidfile.read(path) is None
    assert pidfile.alive(path) is None
    process, _ = started(SLEEPER)
    with process:
        pidfile.write(path, process.pid)
        assert pidfile.alive(path) == process.pid
        assert pidfile.stop(path)
        assert pidfile.alive(path) is None
        assert not path.exists()


def test_a_reused_number_is_neither_ours_nor_signalled(tmp_path: Path) -> None:
    path = tmp_path / "a.pid"
    process, _ = started(SLEEPER)
    with process:
        mark = pidfile.write(path, process.pid)
        path.write_text(json.dumps({"pid": mark.pid, "born": mark.born + "0"}))
        assert pidfile.alive(path) is None
        assert pidfile.stop(path)
        assert process.poll() is None
        process.kill()


def test_an_ended_child_that_nobody_waited_for_is_not_alive(tmp_path: Path) -> None:
    path = tmp_path / "a.pid"
    process, _ = started(SLEEPER)
    with process:
        pidfile.write(path, process.pid)
        process.kill()
        until(lambda: pidfile.alive(path) is None)


def test_who_does_not_end_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.pid"
    process, _ = started(STUBBORN)
    with process:
        pidfile.write(path, process.pid)
        assert not pidfile.stop(path, grace=0.2, request=signal.SIGTERM)
        assert pidfile.birth(process.pid) is None


def test_children_end_with_their_parent(tmp_path: Path) -> None:
    path = tmp_path / "a.pid"
    process, child = started(PARENT)
    with process:
        pidfile.write(path, process.pid)
        pidfile.stop(path)
    assert pidfile.birth(int(child)) is None


@pytest.mark.parametrize("content", ["", "123", "{}", '{"pid": "x", "born": 1}', "\x00"])
def test_an_unreadable_pidfile_is_nobody(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.pid"
    path.write_text(content)
    assert pidfile.alive(path) is None
    assert pidfile.stop(path)


def test_ports_are_picked_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    assert ports.load_ports(path) is None
    first = ports.load_or_pick(path)
    assert set(first) == set(ports.PORT_NAMES)
    assert len(set(first.values())) == len(first)
    assert all(ports.is_free(port) for port in first.values())
    assert ports.load_or_pick(path) == first


def test_a_stranger_on_a_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as stranger:
        stranger.bind((ports.HOST, 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        assert not ports.is_free(port)
        with pytest.raises(EnvironmentError_) as caught:
            ports.check_free("redis", {"redis": port}, tmp_path / "ports.json")
    assert caught.value.code == "STACK_PORT_TAKEN"
    assert str(port) in caught.value.message
    assert "pid" in caught.value.message


def test_home_refuses_a_directory_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    home = Home(tmp_path)
    for act in (home.create, home.purge, lambda: Stack(home).up(), lambda: Stack(home).down(purge=True)):
        with pytest.raises(UsageError) as caught:
            act()
        assert caught.value.code == "HOME_NOT_OURS"
    assert (tmp_path / "thesis.tex").exists()


def test_root_leaves_the_home_of_another_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    home.create()
    if os.geteuid() == 0:
        os.chown(home.root, 65534, 65534)
        home.create()  # it may lie in another's directory
        os.chown(next(path for path in home.root.iterdir() if path.is_file()), 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(UsageError) as caught:
        home.create()
    assert caught.value.code == "HOME_NOT_OURS"


def test_home_is_purged_whole_and_nothing_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").touch()
    home = Home(tmp_path / "home")
    home.create()
    (home.lake / "elsewhere").symlink_to(outside)
    home.purge()
    assert not home.root.exists()
    assert (outside / "keep").exists()
    home.purge()


@pytest.mark.parametrize(("passable", "mode"), [(False, 0o700), (True, 0o711)])
def test_a_home_is_its_owners_even_after_somebody_opened_it(
    tmp_path: Path, passable: bool, mode: int
) -> None:
    home = Home(tmp_path / "home")
    home.create(passable=passable)
    for path in (home.root, *home.root.iterdir()):
        if path.is_dir():
            path.chmod(0o777)
    home.create(passable=passable)
    on_the_way = {home.root, home.root / "data", home.root / "config", home.logs}
    found = {p: stat.S_IMODE(p.stat().st_mode) for p in (home.root, *home.root.iterdir()) if p.is_dir()}
    assert found == {path: mode if path in on_the_way else 0o700 for path in found}
    assert home.registry_url == f"sqlite:///{home.root}/registry.db"


def test_home_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "x"))
    assert Home.default().root == tmp_path / "x"


def test_a_stack_that_never_was(tmp_path: Path) -> None:
    stack = Stack(Home(tmp_path / "home"))
    assert {server.state for server in stack.status()} == {"stopped"}
    assert stack.down() == []
    with pytest.raises(StackError) as caught:
        stack.endpoints()
    assert caught.value.code == "STACK_NOT_UP"
    assert not (tmp_path / "home").exists()


def test_unknown_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="mysql"):
        Stack(Home(tmp_path / "home")).up(only={"mysql"})


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MINIMUM_FREE_BYTES", 1 << 60)
    with pytest.raises(EnvironmentError_) as caught:
        Stack(Home(tmp_path / "home")).up(only={"redis"})
    assert caught.value.code == "STACK_DISK_FULL"


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    binary = home / "bin" / "java"
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    binary.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("version", "code"), [("1.8.0_392", "JAVA_TOO_OLD"), ("17.0.1", "JAVA_TOO_OLD"), ("next", "JAVA_BROKEN")]
)
def test_a_wrong_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, code: str
) -> None:
    monkeypatch.setenv("HEADRACE_JAVA_HOME", str(fake_java(tmp_path / "jdk", version)))
    with pytest.raises(EnvironmentError_) as caught:
        java.java_home()
    assert caught.value.code == code
    assert "HEADRACE_JAVA_HOME" in caught.value.hint


def test_a_missing_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentError_) as caught:
        java.java_home()
    assert caught.value.code == "JAVA_MISSING"


def test_own_java_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = fake_java(tmp_path / "jdk", "21.0.2")
    monkeypatch.setenv("HEADRACE_JAVA_HOME", str(own))
    assert java.java_home() == own
    # No ahead-of-time caches before Java 25.
    assert AotCache.of("kafka", [], []) is None


def test_spark_java_drops_one_module_in_both_spellings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = fake_java(tmp_path / "jdk", "25")
    (own / "release").write_text('JAVA_VERSION="25.0.2"\n')
    (own / "bin" / "java").write_text('#!/bin/sh\nfor a in "$@"; do echo "[$a]"; done\n')
    monkeypatch.setenv("HEADRACE_JAVA_HOME", str(own))
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    wrapper = java.spark_java_home() / "bin" / "java"
    arguments = ["-cp", "a b*", "--add-modules=jdk.incubator.vector", "--add-modules", "jdk.incubator.vector"]
    arguments += ["--add-modules", "java.se", "Main", "", "x'y"]
    answer = subprocess.run([str(wrapper), *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == [
        "[-cp]",
        "[a b*]",
        "[--add-modules]",
        "[java.se]",
        "[Main]",
        "[]",
        "[x'y]",
    ]


def test_an_aot_cache_that_changed_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    cache = AotCache(tmp_path / "aot" / "kafka-0123.aot")
    assert cache.options(training=False) == []
    assert cache.options(training=True) == [f"-XX:AOTCacheOutput={cache.draft}"]
    assert not cache.admit()
    cache.draft.write_bytes(b"learnt")
    for age, name in enumerate(("kafka-a", "kafka-b", "connect-c"), start=1):
        old = tmp_path / "aot" / f"{name}.aot"
        old.touch()
        os.utime(old, (age, age))
    assert cache.admit()
    assert cache.options(training=False) == [f"-XX:AOTCache={cache.path}"]
    kept = {path.name for path in (tmp_path / "aot").glob("*.aot")}
    assert kept == {cache.path.name, "kafka-b.aot", "connect-c.aot"}
    cache.path.write_bytes(b"lear")
    assert cache.options(training=False) == []
    cache.forget()
    assert not cache.usable()


def test_no_cluster_id_looks_like_an_option() -> None:
    ids = {new_cluster_id() for _ in range(5_000)}
    assert len(ids) == 5_000
    assert all(len(found) == 22 and not found.startswith("-") for found in ids)
