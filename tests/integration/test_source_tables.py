"""A table that comes to a captured schema: told, taken in by one command, or declined for good."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source, tables
from headrace.control.context import Context
from headrace.control.lag import State
from headrace.control.newcomers import newcomers
from headrace.control.opened import open_sink
from headrace.control.registry import Registry, ResnapshotEntry
from headrace.control.runs import start as runs
from headrace.model.errors import SourceError
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack
from tests.support.waiting import settle, until
from tests.support.watched import watched
from tests.support.writing import writing

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("honest"),
]

NAME, ROWS = "growing", 700
MIRRORS = ("growsearch", "growcache", "growlake")
COUPONS = "public.coupons"
ALLOWED_S = 120.0
"""How old another table may get while all starts over: seconds, or many on a busy machine."""


@pytest.fixture
def database(stack: RunningStack, context: Context) -> Iterator[Database]:
    ends = stack.endpoints
    with fresh_database(ends.postgres_dsn, NAME) as database:
        database.run(
            "CREATE TABLE items (id int PRIMARY KEY, name text, left_out point)",
            "CREATE TABLE old (id int PRIMARY KEY)",
            "INSERT INTO items SELECT i, 'n' || i FROM generate_series(1, 50) i",
        )
        chosen = [TableId("public", "items")]
        settings = SourceSettings(heartbeat_ms=300, snapshot_chunk_rows=200)
        source.add(context, NAME, database.dsn, tables=chosen, settings=settings)
        stores: dict[str, tuple[str, dict[str, Any]]] = {
            "growsearch": ("elasticsearch", {"url": ends.elasticsearch_url}),
            "growcache": ("redis", {"url": ends.redis_url}),
            "growlake": ("delta", {"path": f"{ends.lake_path}/growing"}),
        }
        for name, (kind, told) in stores.items():
            sink.add(context, name, kind, settings=told, source=NAME)
        try:
            settle(context)
            yield database
        finally:
            for entry in Registry(context.registry).sinks(NAME):
                sink.remove(context, entry.name, purge=True)
            source.remove(context, NAME)


def command(stack: RunningStack, text: str) -> Result:
    words = shlex.split(text.removeprefix("headrace "))
    return CliRunner().invoke(app, [*words, "--home", str(stack.home.root)])


def notes(context: Context) -> list[lag.Note]:
    (seen,) = lag.measure(context).sources
    return list(seen.notes)


def stored(context: Context, name: str, table: str) -> dict[int, dict[str, Any]]:
    """Return the rows of a table that a sink's store holds, by id."""
    registry = Registry(context.registry)
    known = {str(t.schema.table): t for t in registry.source(NAME).tables}
    with closing(open_sink(registry.sink(name))) as store:
        return {int(found.row["id"]): dict(found.row) for found in store.scan(known[table].schema)}


def paused(context: Context) -> set[str]:
    return {told.sink for told in lag.measure(context).sinks if told.state is State.PAUSED}


def rename(database: Database, number: int) -> None:
    """Change a row of the other table."""
    database.run(f"UPDATE items SET name = 'u{number}' WHERE id = 1")


def test_a_new_table_is_told_declined_or_taken_in_beside_the_others(
    stack: RunningStack, context: Context, database: Database
) -> None:
    registry = Registry(context.registry)
    assert notes(context) == []  # what was there when the source was added was not chosen
    database.run(
        "CREATE TABLE coupons (id int PRIMARY KEY, code text)",
        "CREATE TABLE scratch (v int)",
        f"INSERT INTO coupons SELECT i, 'c' || i FROM generate_series(1, {ROWS}) i",
    )
    until(lambda: [note.tables for note in notes(context)] == [(COUPONS, "public.scratch")])
    until(lambda: lag.measure(context).in_sync)  # nothing that is captured is wrong
    told = command(stack, "headrace lag").stdout
    assert f"source tables add {NAME} {COUPONS} public.scratch" in told
    foretold = command(stack, f"{notes(context)[0].remedy} --dry-run")
    assert (foretold.exit_code, "SOURCE_NO_PRIMARY_KEY" in foretold.stdout) == (1, True), foretold.output
    refused = command(stack, f"{notes(context)[0].remedy} --json")
    assert refused.exit_code != 0
    assert len(registry.source(NAME).tables) == 1

    assert command(stack, f"headrace source tables decline {NAME} public.scratch").exit_code == 0
    (note,) = notes(context)
    assert note.tables == (COUPONS,)
    foretold = command(stack, f"{note.remedy} --dry-run")
    assert foretold.exit_code == 0, foretold.output
    assert f"Would capture {NAME}.{COUPONS} into {', '.join(sorted(MIRRORS))}." in foretold.stdout
    assert len(registry.source(NAME).tables) == 1

    def equal() -> bool:
        if all(str(table.schema.table) != COUPONS for table in registry.source(NAME).tables):
            return True
        return len(stored(context, "growcache", COUPONS)) == ROWS

    with writing(partial(rename, database), 0.1), watched(context, equal) as looks:
        done = command(stack, note.remedy)
        assert done.exit_code == 0, done.output
        assert "TABLE_CAPTURED" in command(stack, f"{note.remedy} --dry-run").stdout
    for name in MIRRORS:
        assert {row["code"] for row in stored(context, name, COUPONS).values()} == {
            f"c{i}" for i in range(1, ROWS + 1)
        }
    assert looks.false_greens == []
    words = {said.state for name in MIRRORS for said in looks.words(name, "public.items")}
    assert words.isdisjoint({State.RESYNC_REQUIRED, State.FAILED})
    ages = [s.freshness_seconds for name in MIRRORS for s in looks.words(name, "public.items")]
    assert max(age for age in ages if age is not None) < ALLOWED_S

    database.run(
        "UPDATE coupons SET code = 'changed' WHERE id = 1",
        "DELETE FROM coupons WHERE id = 2",
        "INSERT INTO coupons VALUES (9999, 'late')",
    )
    settle(context)
    for name in MIRRORS:
        rows = stored(context, name, COUPONS)
        assert (rows[1]["code"], rows[9999]["code"], 2 in rows, len(rows)) == ("changed", "late", False, ROWS)
    assert notes(context) == []
    listed = json.loads(command(stack, f"headrace source tables list {NAME} --json").stdout)
    assert listed["captured"] == ["public.items", COUPONS]
    assert listed["left_out"] == ["public.old", "public.scratch"]
    again = command(stack, f"{note.remedy} --json")
    assert again.exit_code != 0
    assert "TABLE_CAPTURED" in again.output

    # A command that is broken off is finished by what lag prints.
    database.run("CREATE TABLE later (id int PRIMARY KEY)", "INSERT INTO later SELECT generate_series(1, 5)")
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(tables, "tell_connector", _broken_off)
        with pytest.raises(SourceError, match="broken off"):
            tables.take_in(context, NAME, [TableId("public", "later")])
    report = lag.measure(context)
    assert not report.in_sync
    half = [t for t in report.tables if t.table == "public.later"]
    until(lambda: {said.state for said in later(context)} == {State.DEGRADED})
    # Nobody reads the rows any more when the run that was to do it has ended.
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(tables, "start", _begun_and_aborted)
        with pytest.raises(SourceError, match="was aborted"):
            tables.take_in(context, NAME, [TableId("public", "later")])
    until(lambda: {said.state for said in later(context)} == {State.DEGRADED})
    assert {said.remedy for said in later(context)} == {f"headrace source tables add {NAME} public.later"}
    assert command(stack, half[0].remedy).exit_code == 0
    for name in MIRRORS:
        assert set(stored(context, name, "public.later")) == {1, 2, 3, 4, 5}
    settle(context)
    assert newcomers(registry, registry.source(NAME)) == []

    # One that is dropped is taken out, as lag says; the others go on.
    database.run("DROP TABLE later")
    until(
        lambda: (
            {t.state for t in lag.measure(context).tables if t.table == "public.later"}
            == {State.RESYNC_REQUIRED}
        ),
    )
    (remedy,) = {t.remedy for t in lag.measure(context).tables if t.table == "public.later"}
    assert command(stack, remedy).exit_code == 0
    assert {str(t.schema.table) for t in registry.source(NAME).tables} == {"public.items", COUPONS}
    database.run("UPDATE coupons SET code = 'after' WHERE id = 1")
    settle(context)
    for name in MIRRORS:
        assert stored(context, name, COUPONS)[1]["code"] == "after"

    # And the way back of taking one in: with its targets, and in again.
    gone = command(stack, f"headrace source tables remove {NAME} {COUPONS} --purge")
    assert gone.exit_code == 0, gone.output
    settle(context)
    database.run("UPDATE coupons SET code = 'unseen' WHERE id = 1")
    assert command(stack, f"headrace source tables add {NAME} {COUPONS}").exit_code == 0
    settle(context)
    for name in MIRRORS:
        rows = stored(context, name, COUPONS)
        assert (rows[1]["code"], len(rows)) == ("unseen", ROWS)

    # Where a query rests meanwhile, it knows an end of the topic that was: of more records, or of fewer.
    for number in (1, 20):
        database.run(f"UPDATE coupons SET code = 'more{number}'")
        settle(context)
        sink.pause(context, "growcache")
        until(lambda: "growcache" in paused(context))
        assert command(stack, f"headrace source tables remove {NAME} {COUPONS}").exit_code == 0
        database.run(f"UPDATE coupons SET code = 'unseen{number}' WHERE id = 1")
        added = command(stack, f"headrace source tables add {NAME} {COUPONS} --no-wait")
        assert added.exit_code == 0, added.output
        for _ in range(number):
            database.run("UPDATE coupons SET code = code || '+'")
        sink.resume(context, "growcache")
        settle(context)
        for name in MIRRORS:
            rows = stored(context, name, COUPONS)
            assert (rows[1]["code"], len(rows)) == (f"unseen{number}" + "+" * number, ROWS)
    last = command(stack, f"headrace source tables remove {NAME} public.items {COUPONS}")
    assert (last.exit_code, "TABLE_LAST" in last.output) == (2, True)


def later(context: Context) -> list[lag.TableLag]:
    return [said for said in lag.measure(context).tables if said.table == "public.later"]


def _begun_and_aborted(context: Context, *arguments: Any, **named: Any) -> ResnapshotEntry:
    return runs.abort(context, runs.start(context, *arguments, **named).id)


def _broken_off(*_: object, **__: object) -> None:
    raise SourceError("broken off", code="BROKEN_OFF")


def test_a_table_that_no_run_can_read_is_taken_in_and_read_by_the_recovery_that_is_told(
    stack: RunningStack, context: Context, database: Database
) -> None:
    """Its changes are followed from then on; what it had before is told to be missing until it is read.

    Seen once, at cffa5f3 beside another stack: it failed, and passed when repeated. Cause unknown.
    """
    database.run(
        "CREATE TABLE tagged (id int, tags int[], PRIMARY KEY (id, tags))",
        "ALTER TABLE tagged REPLICA IDENTITY FULL",
        "INSERT INTO tagged SELECT i, ARRAY[i, 7] FROM generate_series(1, 30) i",
    )
    done = command(stack, f"headrace source tables add {NAME} public.tagged --json")
    assert done.exit_code == 1, done.output
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert error["code"] == "RESNAPSHOT_UNREADABLE"
    database.run("INSERT INTO tagged VALUES (31, '{31}')")
    until(lambda: all(31 in stored(context, name, "public.tagged") for name in MIRRORS))
    told = {found.remedy for found in lag.measure(context).tables if found.table == "public.tagged"}
    assert told == {f"headrace recover {NAME}"}
    assert command(stack, f"headrace recover {NAME}").exit_code == 0
    settle(context)
    for name in MIRRORS:
        assert stored(context, name, "public.tagged").keys() == set(range(1, 32))
