"""What commands print that wait for others, or that others wait for, carried out as it is printed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from headrace.control import first_load, recover, sink, source
from headrace.control.context import Context
from headrace.control.opened import open_sink
from headrace.control.registry import Registry
from headrace.control.runner import ensure_engine
from headrace.control.runs.repository import all_of
from tests.support.database import fresh_database
from tests.support.mirror import Mirror, mirrored
from tests.support.remedy import carry_out, refused
from tests.support.stack import RunningStack
from tests.support.waiting import ended, settle, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(500)]

HEADRACE = str(Path(sys.executable).with_name("headrace"))
ROWS = 20_000


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        "waiting",
        "CREATE TABLE things (id int PRIMARY KEY, v text)",
        "INSERT INTO things SELECT i, 'v' || i FROM generate_series(1, 200) i",
    ) as made:
        made.settle()
        yield made


def begun(mirror: Mirror) -> subprocess.Popen[bytes]:
    """Begin a recovery in a process of its own; return it once it is under way."""
    command = [HEADRACE, "recover", "waiting", "--home", str(mirror.stack.home.root)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    until(lambda: bool(recover.plan(mirror.context, "waiting").unfinished))
    return process


def assert_equal(mirror: Mirror) -> None:
    mirror.settle()
    wanted = {str(key): {"id": key, "v": v} for key, v in mirror.database.run("TABLE things")}
    assert all(rows == wanted for rows in mirror.stored("things").values())


def test_of_two_recoveries_the_second_is_told_of_the_first_and_goes_on_when_it_has_ended(
    mirror: Mirror,
) -> None:
    home = mirror.stack.home.root
    first = begun(mirror)
    try:
        error = refused(home, "recover", "waiting")
        assert error["code"] == "RECOVER_RUNNING"
        assert "resync_required" in carry_out(error["hint"], home, mirror.database.run)
        assert ended(first, 300) == 0
    finally:
        first.kill()
    assert_equal(mirror)
    # The other way that it tells: that process is ended, and the same command goes on.
    first = begun(mirror)
    assert refused(home, "recover", "waiting")["code"] == "RECOVER_RUNNING"
    first.kill()
    ended(first)
    assert recover.plan(mirror.context, "waiting").unfinished
    carry_out("headrace recover waiting", home, mirror.database.run)
    assert_equal(mirror)


def watcher_of(home: Path) -> psutil.Process | None:
    """Return the watcher of an installation."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "headrace.control.watcher" in words and any(str(home) in word for word in words):
            return process
    return None


@contextmanager
def unwatched(context: Context, home: Path) -> Iterator[None]:
    """Have the watcher hang, at a moment when it holds nothing that others need."""
    ensure_engine(context)
    until(lambda: watcher_of(home) is not None)
    watcher = watcher_of(home)
    assert watcher is not None

    def hangs() -> bool:
        watcher.suspend()
        with closing(sqlite3.connect(context.registry, timeout=1, isolation_level=None)) as registry:
            try:
                registry.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                watcher.resume()
                return False
        return True

    until(hangs)
    try:
        yield
    finally:
        watcher.resume()


def test_a_first_load_that_nobody_begins_is_begun_as_it_is_told(
    context: Context, stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = stack.home.root
    monkeypatch.setattr(first_load, "_BEGINS_WITHIN_S", 5.0)
    with fresh_database(stack.endpoints.postgres_dsn, "unbegun") as database:
        database.run(
            "CREATE TABLE large (id int PRIMARY KEY, name text)",
            f"INSERT INTO large SELECT i, repeat('n', 100) || i FROM generate_series(1, {ROWS}) i",
        )
        try:
            with unwatched(context, home):
                error = refused(home, "source", "add", "unbegun", database.dsn, "--load-by-run-mib", "1")
                assert (error["code"], error["hint"]) == (
                    "FIRST_LOAD_NOT_BEGUN",
                    "headrace resnapshot unbegun public.large",
                )
                assert all_of(Registry(context.registry), "unbegun") == []
                carry_out(error["hint"], home, database.run)
            stores = {"url": stack.endpoints.redis_url}
            sink.add(context, "unbeguncache", "redis", settings=stores, source="unbegun", wait=False)
            settle(context)
            with closing(open_sink(Registry(context.registry).sink("unbeguncache"))) as opened:
                (table,) = Registry(context.registry).source("unbegun").tables
                assert opened.count(table.schema) == ROWS
            (run,) = all_of(Registry(context.registry), "unbegun")
            assert run.phase == "completed"
        finally:
            for entry in Registry(context.registry).sinks("unbegun"):
                sink.remove(context, entry.name, purge=True)
            source.remove(context, "unbegun")
