"""The first load of a large table is a run: the others stream meanwhile, and it goes on where it was."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.opened import open_sink
from headrace.control.registry import Registry
from headrace.control.runs.repository import all_of
from headrace.control.runs.start import abort, pause, resume
from headrace.observe import pidfile
from tests.support.database import fresh_database
from tests.support.mirror import Mirror, mirrored
from tests.support.remedy import steps
from tests.support.stack import RunningStack
from tests.support.waiting import settle, until
from tests.support.watched import watched

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(500)]

ROWS = 40_000
TOPIC = "load.public.large"
TABLES = (
    "CREATE TABLE large (id int PRIMARY KEY, name text)",
    f"INSERT INTO large SELECT i, repeat('n', 100) || i FROM generate_series(1, {ROWS}) i",
    "CREATE TABLE small (id int PRIMARY KEY)",
    "INSERT INTO small VALUES (1)",
)
SLOWLY = {"load_by_run_mib": 1, "snapshot_chunk_rows": 16}


def words(mirror: Mirror, table: str) -> set[lag.State]:
    return {said.state for said in lag.measure(mirror.context).tables if said.table == f"public.{table}"}


def is_equal(mirror: Mirror) -> bool:
    large = {str(key): {"id": key, "name": name} for key, name in mirror.database.run("TABLE large")}
    small = {str(key): {"id": key} for (key,) in mirror.database.run("TABLE small")}
    wanted = {"large": large, "small": small}
    return all(rows == wanted[table] for table in wanted for rows in mirror.stored(table).values())


def told(mirror: Mirror, *words: str) -> Any:
    done = CliRunner().invoke(app, [*words, "--json", "--home", str(mirror.stack.home.root)])
    assert done.exit_code == 0, done.output
    return json.loads(done.output.splitlines()[-1])


def test_connect_is_killed_while_a_run_loads_a_large_table(stack: RunningStack) -> None:
    with mirrored(stack, "load", *TABLES, settings=SLOWLY) as mirror:
        kafka = Kafka(mirror.context.kafka_bootstrap)

        def read() -> int:
            return int(kafka.ends([TOPIC])[TOPIC, 0][1])

        with watched(mirror.context, lambda: is_equal(mirror)) as seen:
            until(lambda: read() > ROWS // 8)
            (run,) = all_of(Registry(mirror.context.registry), "load")
            pause(mirror.context, run.id)
            # The small table streams while the large one waits.
            mirror.database.run("INSERT INTO small VALUES (2)", "DELETE FROM large WHERE id = 1")
            mirror.database.run(f"UPDATE large SET name = 'changed' WHERE id IN (2, {ROWS})")
            until(lambda: all("2" in rows for rows in mirror.stored("small").values()))
            until(lambda: words(mirror, "large") == {lag.State.SNAPSHOTTING})
            resume(mirror.context, run.id)
            before = read()
            until(lambda: read() > before + ROWS // 8)
            pid = pidfile.alive(mirror.stack.home.pidfile("connect"))
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            half = read()
            assert half < ROWS, "it was over before it could be broken off"
            mirror.stack.stack.up()
            mirror.settle()
        assert not seen.false_greens
        assert is_equal(mirror)
        # Markers of transactions count as offsets.
        assert read() < 1.1 * ROWS + half / 2, "it began again"
        registry = Registry(mirror.context.registry)
        until(lambda: {run.phase for run in all_of(registry, "load")} == {"completed"})
        # Others of this stack have had runs as well.
        (listed,) = [run for run in told(mirror, "resnapshot", "list") if run["source"] == "load"]
        assert listed["state"] == "completed"
        assert listed["why"] == "the first load of large tables"
        assert listed["tables"] == ["public.large"]


def test_a_load_that_was_aborted_is_told_and_mended_as_it_is_told(stack: RunningStack) -> None:
    with mirrored(stack, "load", *TABLES, settings=SLOWLY) as mirror:
        registry = Registry(mirror.context.registry)
        until(lambda: bool(all_of(registry, "load")))
        (run,) = all_of(registry, "load")
        abort(mirror.context, run.id)
        until(lambda: words(mirror, "large") == {lag.State.DEGRADED})
        assert not mirror.in_sync
        (remedy,) = {s.remedy for s in lag.measure(mirror.context).tables if s.table == "public.large"}
        assert remedy == "headrace resnapshot load public.large"
        told(mirror, *steps(remedy)[1])
        mirror.settle()
        assert is_equal(mirror)


def test_a_sink_that_is_added_after_the_load_has_nothing_to_sweep(
    context: Context, stack: RunningStack
) -> None:
    with fresh_database(stack.endpoints.postgres_dsn, "load") as database:
        database.run(
            *TABLES,
            "CREATE TABLE parted (id int PRIMARY KEY, name text) PARTITION BY RANGE (id)",
            f"CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO ({ROWS + 1})",
            "INSERT INTO parted TABLE large",
        )
        settings = SourceSettings(heartbeat_ms=300, load_by_run_mib=1)
        said: list[str] = []
        source.add(context, "load", database.dsn, settings=settings, say=said.append)
        try:
            assert "a run is to read public.large, public.parted: `headrace resnapshot list`" in said
            kafka, topics = Kafka(context.kafka_bootstrap), [TOPIC, "load.public.parted", "load.public.small"]
            ends = {topic: end for (topic, _), (_, end) in kafka.ends(topics).items()}
            assert ends[TOPIC] >= ROWS
            assert ends["load.public.parted"] >= ROWS
            stores = {"url": stack.endpoints.redis_url}
            entry, _ = sink.add(context, "loadcache", "redis", settings=stores, source="load", wait=False)
            assert not entry.incomplete
            settle(context)
            opened = open_sink(Registry(context.registry).sink("loadcache"))
            with closing(opened):
                tables = Registry(context.registry).source("load").tables
                counted = {table.schema.table.name: opened.count(table.schema) for table in tables}
            assert counted == {"large": ROWS, "parted": ROWS, "small": 1}
            sink.remove(context, "loadcache", purge=True)
        finally:
            source.remove(context, "load")


def test_a_column_goes_while_a_run_reads(stack: RunningStack) -> None:
    """The connector takes what it has read by the places of columns, which are others then.

    A sink that comes to the new columns after the table's last record is told by no record that it has them.
    """
    tables = (
        "CREATE TABLE large (id int PRIMARY KEY, gone text, a text, b text)",
        f"INSERT INTO large SELECT i, repeat('g', 100), 'a' || i, 'b' || i FROM generate_series(1, {ROWS}) i",
    )
    with mirrored(stack, "load", *tables, settings=SLOWLY) as mirror:
        kafka = Kafka(mirror.context.kafka_bootstrap)
        until(lambda: kafka.ends([TOPIC])[TOPIC, 0][1] > ROWS // 8)
        mirror.database.run(
            "ALTER TABLE large DROP COLUMN gone", "UPDATE large SET b = 'changed' WHERE id = 1"
        )
        registry = Registry(mirror.context.registry)
        until(lambda: {run.phase for run in all_of(registry, "load")} == {"completed"}, 300)
        mirror.settle()
        wanted = {key: (a, b) for key, a, b in mirror.database.run("SELECT id, a, b FROM large")}
        for name, rows in mirror.stored("large").items():
            assert {row["id"]: (row["a"], row["b"]) for row in rows.values()} == wanted, name
