"""Runs of a resnapshot: side by side, paused, aborted, killed, under writers; each does what it was asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.registry import Registry, ResnapshotEntry
from headrace.control.runner import engine_state
from headrace.control.runs import start as runs
from headrace.control.runs.repository import UNSWEPT, active, all_of, run_of
from headrace.control.verdicts import standing
from headrace.model.errors import HeadraceError, SinkError, UsageError
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack
from tests.support.waiting import ended, settle, until
from tests.support.writing import writing

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("honest"),
]

ITEMS, OTHERS = TableId("public", "items"), TableId("public", "others")
ROWS = 6_000
HEADRACE = str(Path(sys.executable).with_name("headrace"))


@pytest.fixture(scope="module")
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "runs") as database:
        database.run(
            "CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL)",
            "CREATE TABLE others (id int PRIMARY KEY)",
            f"INSERT INTO items SELECT i, 'n' || i FROM generate_series(1, {ROWS}) i",
            "INSERT INTO others SELECT generate_series(1, 10)",
        )
        settings = SourceSettings(heartbeat_ms=300, snapshot_chunk_rows=200)
        source.add(context, "depot", database.dsn, settings=settings, wait=False)
        kept = {"url": stack.endpoints.redis_url, "format": "json"}
        sink.add(context, "depotcache", "redis", settings=kept, wait=False)
        settle(context)
        yield database
        for entry in Registry(context.registry).sinks("depot"):
            sink.remove(context, entry.name, purge=True)
        source.remove(context, "depot")


@pytest.fixture(scope="module")
def cache(database: Database, stack: RunningStack) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(stack.endpoints.redis_url, decode_responses=True) as client:
        yield client


def stored(cache: redis.Redis, prefix: str = "depot") -> dict[int, dict[str, Any]]:
    keys = sorted(set(cache.scan_iter(f"{prefix}:items:*", count=1000)))
    values = [json.loads(value) for value in cache.mget(keys) if value]
    return {row["id"]: {name: row[name] for name in row if not name.startswith("_")} for row in values}


def wanted(database: Database) -> dict[int, dict[str, Any]]:
    columns = [
        row[0]
        for row in database.run(
            "SELECT attname FROM pg_attribute WHERE attnum > 0 AND NOT"
            " attisdropped AND attrelid = 'items'::regclass ORDER BY attnum"
        )
    ]
    rows = database.run("SELECT * FROM items")
    return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}


def hide(database: Database, change: str) -> None:
    """Change rows of a table so that the stream does not tell."""
    database.run(
        "ALTER PUBLICATION headrace_depot DROP TABLE items",
        change,
        "ALTER PUBLICATION headrace_depot ADD TABLE items",
    )


def phase(context: Context, run: ResnapshotEntry) -> str:
    return run_of(Registry(context.registry), run.id).phase


def headrace(context: Context, *words: str, code: int = 0) -> Any:
    told = CliRunner().invoke(app, [*words, "--json", "--home", str(context.registry.parent)])
    assert told.exit_code == code, told.output
    return json.loads(told.stdout.splitlines()[-1]) if told.stdout else {}


def slow(context: Context, *tables: TableId) -> ResnapshotEntry:
    """Start a run that reads for a good while."""
    return runs.start(context, "depot", tables=tables or [ITEMS], rows_per_second=600)


def reading(context: Context, run: ResnapshotEntry) -> None:
    def begun() -> bool:
        now = run_of(Registry(context.registry), run.id)
        return now.phase == "reading" and sum(now.counts.get("read", {}).values()) > 100

    until(begun)


def steered(database: Database, run: str) -> list[str]:
    """Return what the connector was told about a run, the oldest first."""
    told = database.run(f"SELECT type FROM headrace.depot_signal WHERE id LIKE '{run}-%' ORDER BY id")
    return [row[0] for row in told if row[0] != "execute-snapshot"]


def rests(database: Database, run: str) -> bool:
    """Return whether the connector's last order is to rest."""
    return steered(database, run)[-1:] == ["pause-snapshot"]


def test_runs_of_different_tables_go_side_by_side_and_those_of_one_are_refused_by_name(
    context: Context, database: Database, cache: redis.Redis
) -> None:
    sink.pause(context, "depotcache")
    with pytest.raises(SinkError) as rests:
        runs.resnapshot(context, "depot", tables=[ITEMS], why="the first")
    assert rests.value.code == "SINK_AT_REST"
    (first,) = active(Registry(context.registry), "depot")
    with pytest.raises(UsageError) as busy:
        runs.start(context, "depot", tables=[ITEMS])
    assert (busy.value.code, busy.value.hint) == (
        "RESNAPSHOT_TABLE_BUSY", f"headrace resnapshot wait {first.id}"
    )  # fmt: skip
    other = headrace(context, "resnapshot", "depot", "public.others", "--no-wait")
    until(lambda: headrace(context, "resnapshot", "show", other["run"])["state"] == "applying")

    # A column that comes meanwhile: the first run has read every row without it.
    database.run(
        "ALTER TABLE items ADD COLUMN grade int NOT NULL DEFAULT 5",
        "UPDATE items SET name = name || '!' WHERE id = 1",
    )
    words = rests.value.hint.split()
    headrace(context, *words[1:])
    headrace(context, "resnapshot", "wait", other["run"])
    headrace(context, "resnapshot", "wait", first.id)
    listed = {run["run"]: run for run in headrace(context, "resnapshot", "list")}
    assert (listed[first.id]["tables"], listed[first.id]["read"]) == (["public.items"], ROWS)
    assert (listed[first.id]["why"], listed[first.id]["who"] != "") == ("the first", True)
    assert (listed[other["run"]]["tables"], listed[other["run"]]["read"]) == (["public.others"], 10)

    def green_means_whole() -> bool:
        green = lag.measure(context).in_sync
        whole = stored(cache).get(2, {}).get("grade") == 5
        assert whole or not green
        return whole and green

    until(green_means_whole)
    settle(context)
    assert stored(cache) == wanted(database)


@pytest.mark.parametrize(
    ("by", "first"), [(signal.SIGKILL, 50), (signal.SIGHUP, 40)], ids=["killed", "hung up"]
)
def test_a_run_under_writers_is_paused_killed_and_goes_on_while_readers_see_no_gap(
    context: Context, database: Database, cache: redis.Redis, by: signal.Signals, first: int
) -> None:
    """Its client is killed, or loses its terminal, and so is the process that carries it out."""
    hide(database, f"DELETE FROM items WHERE id BETWEEN {first} AND {first + 9}")
    over, gaps = threading.Event(), []

    def sample() -> None:
        while not over.wait(0.05):
            if not cache.exists("depot:items:70"):
                gaps.append(time.time())

    sampling = threading.Thread(target=sample)
    sampling.start()
    try:
        with written(database):
            command = [HEADRACE, "resnapshot", "depot", "public.items"]
            command += ["--rows-per-second", "600", "--home", str(context.registry.parent)]
            client = begun(command)
            until(lambda: bool(active(Registry(context.registry), "depot")))
            (run,) = active(Registry(context.registry), "depot")
            reading(context, run)
            client.send_signal(by)
            ended(client)
            headrace(context, "resnapshot", "pause", run.id)
            assert headrace(context, "resnapshot", "show", run.id)["state"] in ("pausing", "paused")
            for pid in workers(run.id):
                os.kill(pid, signal.SIGKILL)
            swept = headrace(context, "resnapshot", "resume", run.id)["removed"]
    finally:
        over.set()
        sampling.join()
    assert swept == [{"sink": "depotcache", "table": "public.items", "removed": 10}]
    assert not gaps
    settle(context)
    assert stored(cache) == wanted(database)


def begun(command: list[str]) -> subprocess.Popen[bytes]:
    """Begin a command that ends when its terminal does, whoever let these tests go on without one."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL)
    finally:
        signal.signal(signal.SIGHUP, before)


def workers(run: str) -> list[int]:
    """Return the processes that work on a run."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if run in words and any("runs.worker" in word for word in words):
            found.append(process.pid)
    return found


def test_a_run_that_is_aborted_removes_nothing_and_the_next_one_does(
    context: Context, database: Database, cache: redis.Redis
) -> None:
    hide(database, "DELETE FROM items WHERE id BETWEEN 60 AND 69")
    run = slow(context)
    reading(context, run)
    # The connector rests: it is to hear of the end all the same, and the next run is to be read.
    until(lambda: rests(database, run.id))
    headrace(context, "resnapshot", "abort", run.id)
    with pytest.raises(HeadraceError) as ended:
        runs.wait(context, run.id)
    assert ended.value.code == "RESNAPSHOT_ABORTED"
    assert 60 in stored(cache)
    # Read whole, then aborted: what would have been removed is told, with what finds it again.
    sink.pause(context, "depotcache")
    run = runs.start(context, "depot", tables=[ITEMS])
    until(lambda: phase(context, run) == "applying")
    runs.abort(context, run.id)
    until(lambda: phase(context, run) == "aborted")
    sink.resume(context, "depotcache")
    until(lambda: UNSWEPT in {found.code for found in standing(Registry(context.registry), "depot")})
    assert not lag.measure(context).in_sync
    remedy = state(context)[1]
    # The first look of a run has seen that the table was not published for a while.
    assert remedy == "headrace source refresh depot"
    headrace(context, *remedy.split()[1:])
    newest = all_of(Registry(context.registry), "depot")[0]
    assert newest.counts["swept"] == {"depotcache": {"public.items": 10}}
    settle(context)
    assert stored(cache) == wanted(database)


def state(context: Context) -> tuple[str, str]:
    found = next(t for t in lag.measure(context).tables if t.table == "public.items")
    return found.state.value, found.remedy


def test_connect_is_killed_while_a_run_reads(
    context: Context, database: Database, cache: redis.Redis, stack: RunningStack
) -> None:
    hide(database, "DELETE FROM items WHERE id BETWEEN 80 AND 84")
    run = runs.start(context, "depot", tables=[ITEMS], max_latency_ms=0)
    until(lambda: rests(database, run.id))
    pid = int(json.loads(stack.home.pidfile("connect").read_text())["pid"])
    orders = steered(database, run.id)
    with written(database):
        os.kill(pid, signal.SIGKILL)
        stack.stack.up()
        # The connector has forgotten that it was to rest: it is told again, unless it has read all before.
        until(lambda: len(steered(database, run.id)) > len(orders) or phase(context, run) != "reading")
        swept = runs.swept_by(runs.wait(context, run.id))
    assert [done.removed for done in swept] == [5]
    settle(context)
    assert stored(cache) == wanted(database)


@contextmanager
def written(database: Database) -> Iterator[None]:
    """Have somebody write all the while, over what one before left."""
    database.run("DELETE FROM items WHERE id > 20000")

    def write(number: int) -> None:
        database.run(
            f"UPDATE items SET name = 'w{number}' WHERE id = {100 + number % 5_000}",
            f"DELETE FROM items WHERE id = {20_000 + number - 4}",
            f"INSERT INTO items (id, name) VALUES ({20_001 + number}, 'new')",
        )

    with writing(write, every_s=0.02):
        yield


def test_the_engine_is_killed_while_a_run_reads_under_writers(
    context: Context, database: Database, cache: redis.Redis
) -> None:
    hide(database, "DELETE FROM items WHERE id BETWEEN 85 AND 88")
    with written(database):
        run = slow(context)
        reading(context, run)
        os.kill(int(engine_state(context.progress)["pid"]), signal.SIGKILL)
        swept = runs.swept_by(runs.wait(context, run.id))
    assert [done.removed for done in swept] == [4]
    settle(context)
    assert stored(cache) == wanted(database)


def test_a_column_that_comes_while_a_run_reads_is_in_every_row(
    context: Context, database: Database, cache: redis.Redis
) -> None:
    """Rows that were read before it came, and rows that were read since."""
    with written(database):
        run = slow(context)
        reading(context, run)
        database.run(
            "ALTER TABLE items ADD COLUMN shelf text NOT NULL DEFAULT 'low'",
            "UPDATE items SET name = name || '?' WHERE id = 1",
        )
        runs.wait(context, run.id)
    settle(context)
    assert stored(cache) == wanted(database)


def test_a_run_that_is_told_to_queue_begins_when_the_other_is_over(
    context: Context, database: Database, cache: redis.Redis
) -> None:
    first = slow(context)
    reading(context, first)
    second = headrace(context, "resnapshot", "depot", "public.items", "--queue", "--no-wait")["run"]
    assert headrace(context, "resnapshot", "show", second)["state"] == "queued"
    headrace(context, "resnapshot", "abort", first.id)
    assert headrace(context, "resnapshot", "wait", second)["state"] == "completed"
    settle(context)
    assert stored(cache) == wanted(database)


def test_a_run_rests_while_the_database_is_slow_and_ends_all_the_same(
    context: Context, database: Database, cache: redis.Redis
) -> None:
    run = runs.start(context, "depot", tables=[ITEMS], max_latency_ms=0)
    until(lambda: "an answer takes the database" in run_of(Registry(context.registry), run.id).reason)
    assert runs.wait(context, run.id).phase == "completed"
    settle(context)
    assert stored(cache) == wanted(database)


def test_a_new_sink_that_is_broken_off_before_its_sweep_is_not_green(
    context: Context, database: Database, cache: redis.Redis, stack: RunningStack
) -> None:
    hide(database, "DELETE FROM items WHERE id BETWEEN 90 AND 99")
    runs.resnapshot(context, "depot", tables=[ITEMS])
    command = [HEADRACE, "sink", "add", "late", "--kind", "redis", "--source", "depot"]
    command += ["--url", stack.endpoints.redis_url, "--set", "key_prefix=late:", "--set", "format=json"]
    client = begun([*command, "--home", str(context.registry.parent)])
    until((context.pipelines / "late.json").exists)
    client.send_signal(signal.SIGHUP)
    client.wait()

    def look() -> bool:
        found = next(t for t in lag.measure(context).tables if (t.sink, t.table) == ("late", "public.items"))
        green = found.state.value == "streaming"
        assert not green or stored(cache, "late") == wanted(database)
        return found.state.value == "resync_required" and found.lag_records == 0

    until(look)
    headrace(context, "resnapshot", "depot", "--sink", "late")
    settle(context)
    assert stored(cache, "late") == wanted(database)
    assert all(run.phase != "failed" for run in all_of(Registry(context.registry), "depot"))
