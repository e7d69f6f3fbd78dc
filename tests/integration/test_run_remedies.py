"""What runs of a resnapshot print when they end otherwise than asked, carried out as it is printed."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import redis
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.registry import Registry, ResnapshotEntry
from headrace.control.runs import start as runs
from headrace.control.runs.repository import UNSWEPT, all_of, run_of
from headrace.control.verdicts import standing
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.remedy import bare, carry_out, refused
from tests.support.stack import RunningStack
from tests.support.waiting import ended, settle, until

if TYPE_CHECKING:
    from typing_extensions import LiteralString

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("honest"),
]

ITEMS, OTHERS = TableId("public", "items"), TableId("public", "others")
TABLES = ("items", '"odd.name"', "others")
ROWS = 3_000


@dataclass(frozen=True, slots=True)
class Depot:
    """A source whose role is no superuser, with its administrator, and one sink, with its store."""

    context: Context
    database: Database
    cache: redis.Redis

    def stray(self) -> None:
        """Have the cache hold a row that the source does not have: nobody was told that it went."""
        self.database.run("INSERT INTO items VALUES (999999, 'goes') ON CONFLICT DO NOTHING")
        until(lambda: "999999" in self.stored("items"))
        ((name,),) = self.database.run("SELECT quote_ident(pubname) FROM pg_publication")
        out, back = (f"ALTER PUBLICATION {name} {word} TABLE items" for word in ("DROP", "ADD"))
        self.database.run(out, "DELETE FROM items WHERE id = 999999", back)
        assert self.strays() == {"999999"}

    def stored(self, table: str) -> set[str]:
        """Return the keys of the rows that the cache holds."""
        head = f"hired:{table}:"
        return {key.removeprefix(head) for key in self.cache.scan_iter(f"{head}*", count=1000)}

    def strays(self) -> set[str]:
        """Return which rows of the cache the source does not have."""
        return self.stored("items") - {str(key) for (key,) in self.database.run("SELECT id FROM items")}

    def assert_equal(self) -> None:
        """Fail unless status is green and the cache holds what the source does."""
        settle(self.context)
        wanted = {str(key): name for key, name in self.database.run("SELECT id, name FROM items")}
        values = [
            json.loads(value or "{}") for value in self.cache.mget([f"hired:items:{k}" for k in wanted])
        ]
        assert {str(row.get("id")): row.get("name") for row in values} == wanted
        assert not self.strays()

    def word(self, table: str) -> tuple[str, str]:
        """Return the state of a table, and its remedy."""
        found = next(told for told in lag.measure(self.context).tables if told.table == table)
        return found.state.value, found.remedy

    def refused(self, *words: str) -> dict[str, Any]:
        """Return the error that a command prints."""
        return refused(self.context.registry.parent, *words)

    def headrace(self, *words: str, code: int = 0) -> str:
        """Run a command that ends with a code; return what it prints."""
        done = CliRunner().invoke(app, [*words, "--home", str(self.context.registry.parent)])
        assert done.exit_code == code, done.output
        return done.stdout

    def mended(self, hint: str) -> str:
        """Carry a hint out; return what its command prints."""
        return carry_out(hint, self.context.registry.parent, self.database.run)

    def read_slowly(self, *tables: TableId) -> ResnapshotEntry:
        """Start a run and return it once it reads, for a good while."""
        run = runs.start(self.context, "hired", tables=tables or [ITEMS], rows_per_second=400)

        def begun() -> bool:
            now = run_of(Registry(self.context.registry), run.id)
            return now.phase == "reading" and sum(now.counts.get("read", {}).values()) > 100

        until(begun)
        return run

    def until_phase(self, run: ResnapshotEntry, phase: str) -> None:
        """Wait until a run has come so far."""
        until(lambda: run_of(Registry(self.context.registry), run.id).phase == phase)


@pytest.fixture(scope="module")
def depot(stack: RunningStack, context: Context) -> Iterator[Depot]:
    server = Database(stack.endpoints.postgres_dsn)
    server.run("DROP ROLE IF EXISTS hired", "CREATE ROLE hired LOGIN REPLICATION PASSWORD 'h'")
    with fresh_database(server.dsn, "hired") as database:
        database.run(
            "CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL)",
            'CREATE TABLE "odd.name" (id int PRIMARY KEY)',
            "CREATE TABLE others (id int PRIMARY KEY)",
            f"INSERT INTO items SELECT i, 'n' || i FROM generate_series(1, {ROWS}) i",
            'INSERT INTO "odd.name" SELECT generate_series(1, 10)',
            "INSERT INTO others SELECT generate_series(1, 50)",
            "ALTER TABLE items OWNER TO hired",
            'ALTER TABLE "odd.name" OWNER TO hired',
            "ALTER TABLE others OWNER TO hired",
            "GRANT CREATE ON DATABASE hired TO hired",
        )
        dsn = database.dsn.replace(server.dsn.partition("@")[0], "postgresql://hired:h")
        settings = SourceSettings(heartbeat_ms=300, snapshot_chunk_rows=100)
        source.add(context, "hired", dsn, settings=settings, wait=False)
        kept = {"url": stack.endpoints.redis_url, "format": "json"}
        sink.add(context, "hiredcache", "redis", settings=kept, source="hired", wait=False)
        try:
            settle(context)
            with redis.Redis.from_url(stack.endpoints.redis_url, decode_responses=True) as client:
                yield Depot(context, database, client)
        finally:
            sink.remove(context, "hiredcache", purge=True)
            source.remove(context, "hired")
    server.run("DROP ROLE hired")


POLICED = (
    "ALTER TABLE items ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE items FORCE ROW LEVEL SECURITY",
    "CREATE POLICY few ON items USING (id < 10)",
)
UNPOLICED = (
    "DROP POLICY IF EXISTS few ON items",
    "ALTER TABLE items NO FORCE ROW LEVEL SECURITY",
    "ALTER TABLE items DISABLE ROW LEVEL SECURITY",
    "ALTER ROLE hired NOBYPASSRLS",
)


@pytest.mark.parametrize(
    ("shut", "code"),
    [
        pytest.param(("REVOKE SELECT ON items FROM hired",), "SOURCE_SELECT_RIGHT", id="right"),
        pytest.param(POLICED, "SOURCE_ROW_SECURITY", id="row security"),
    ],
)
def test_a_run_that_could_not_read_a_table_is_resumed_as_it_is_told(
    depot: Depot, shut: tuple[LiteralString, ...], code: str
) -> None:
    """A16: rows that a policy hides are not rows that are gone."""
    depot.stray()
    run = depot.read_slowly()
    depot.database.run(*shut)
    told = depot.refused("resnapshot", "wait", run.id)
    assert told["code"] == code
    assert depot.stored("items") >= {str(key) for key in range(1, ROWS + 1)}
    # The cause is still there: it is told again, with what is to be done after it.
    again = depot.refused("resnapshot", "resume", run.id)
    assert (again["code"], again["hint"]) == (told["code"], told["hint"])
    assert depot.strays()
    depot.mended(told["hint"])
    depot.assert_equal()
    depot.database.run(*UNPOLICED)


def test_a_table_that_could_not_be_read_keeps_no_other_of_its_run_from_being_made_right(depot: Depot) -> None:
    depot.stray()
    run = depot.read_slowly(ITEMS, OTHERS)
    depot.database.run("REVOKE SELECT ON others FROM hired")
    done = json.loads(depot.headrace("resnapshot", "wait", run.id, "--json", code=1))
    assert (done["state"], done["tables"], done["swept"]) == ("completed", ["public.items"], 1)
    said, _, remedy = bare(done["left_out"]["public.others"]).partition("may not be read. ")
    assert remedy.endswith(" -- then: headrace resnapshot hired public.others"), said
    depot.mended(remedy)
    depot.assert_equal()


def test_a_run_that_was_aborted_is_over_and_another_is_begun_as_it_is_told(depot: Depot) -> None:
    depot.stray()
    run = depot.read_slowly()
    runs.abort(depot.context, run.id)
    told = depot.refused("resnapshot", "wait", run.id)
    again = "headrace resnapshot hired public.items"
    assert (told["code"], told["hint"]) == ("RESNAPSHOT_ABORTED", again)
    assert depot.strays()
    over = depot.refused("resnapshot", "resume", run.id)
    assert (over["code"], over["hint"]) == ("RESNAPSHOT_OVER", again)
    depot.mended(told["hint"])
    depot.assert_equal()
    depot.stray()
    depot.mended(over["hint"])
    depot.assert_equal()
    for order in ("pause", "abort"):
        over = depot.refused("resnapshot", order, run.id)
        assert over["code"] == "RESNAPSHOT_OVER"
        assert "aborted" in depot.mended(over["hint"])


def test_a_run_that_nobody_knows_is_found_in_the_list_that_is_told(depot: Depot) -> None:
    run = runs.start(depot.context, "hired", tables=[ITEMS])
    for name in ("no such", ""):
        told = depot.refused("resnapshot", "wait", name)
        assert told["code"] == "RESNAPSHOT_UNKNOWN"
        assert run.id in depot.mended(told["hint"])
    runs.wait(depot.context, run.id)
    depot.assert_equal()


def test_a_run_that_leaves_a_table_out_says_so_and_ends_no_unfinished_run_of_it(depot: Depot) -> None:
    ((publication,),) = depot.database.run("SELECT quote_ident(pubname) FROM pg_publication")
    depot.database.run(
        f"ALTER PUBLICATION {publication} DROP TABLE items",
        f"DELETE FROM items WHERE id > {ROWS // 2}",
        f"ALTER PUBLICATION {publication} ADD TABLE items",
        "ANALYZE",
    )
    large = depot.refused("resnapshot", "hired", "public.items")
    assert large["code"] == "RESNAPSHOT_SWEEP_LARGE"
    depot.database.run("REVOKE SELECT ON items FROM hired")
    planned = runs.plan(depot.context, "hired")
    assert (planned.rows, list(planned.tables)) == (50, ["public.others"])
    done = depot.headrace("resnapshot", "hired", "--json", code=1)
    whole = json.loads(done)
    assert (whole["state"], whole["tables"]) == ("completed", ["public.others"])
    assert whole["left_out"].keys() == planned.left_out.keys() == {"public.items", "public.odd.name"}
    assert "GRANT SELECT" in whole["left_out"]["public.items"]
    assert run_of(Registry(depot.context.registry), whole["run"]).plan["estimate"] == 50
    said = depot.headrace("resnapshot", "wait", whole["run"], code=1)
    assert "! public.items is left out: " in said
    assert "left out: public.items: " in depot.headrace("resnapshot", "show", whole["run"])
    assert "public.others; left out: " in depot.headrace("resnapshot", "list")
    # What the other run has found of that table is still to be decided, and can be.
    depot.database.run("GRANT SELECT ON items TO hired")
    depot.mended(large["hint"])
    depot.assert_equal()
    depot.database.run(
        f"INSERT INTO items SELECT i, 'n' || i FROM generate_series({ROWS // 2 + 1}, {ROWS}) i"
    )


def test_a_run_that_was_aborted_before_its_sweep_is_made_good_as_lag_tells(depot: Depot) -> None:
    depot.stray()
    sink.pause(depot.context, "hiredcache")
    run = runs.start(depot.context, "hired", tables=[ITEMS])
    depot.until_phase(run, "applying")
    runs.abort(depot.context, run.id)
    depot.until_phase(run, "aborted")
    sink.resume(depot.context, "hiredcache")

    def remedy() -> str:
        seen = [found for found in lag.measure(depot.context).tables if found.table == "public.items"]
        return seen[0].remedy

    # The first look of the run has seen that the table was not published for a while, which is worse.
    until(lambda: remedy() == "headrace source refresh hired", why=remedy)
    told = standing(Registry(depot.context.registry), "hired")
    assert [one.remedy for one in told if one.code == UNSWEPT] == ["headrace resnapshot hired public.items"]
    assert depot.strays()
    depot.mended(remedy())
    depot.assert_equal()


def test_a_table_that_is_dropped_after_it_was_read_is_left_out_of_its_run(depot: Depot) -> None:
    """There is a row to remove, so that the rows would be counted."""
    depot.database.run("CREATE TABLE brief (id int PRIMARY KEY)", "ALTER TABLE brief OWNER TO hired")
    depot.database.run("INSERT INTO brief VALUES (1)")
    depot.headrace("source", "tables", "add", "hired", "public.brief")
    settle(depot.context)
    depot.cache.copy("hired:brief:1", "hired:brief:2")
    depot.stray()
    sink.pause(depot.context, "hiredcache")
    run = runs.start(depot.context, "hired", tables=[TableId("public", "brief"), ITEMS])
    depot.until_phase(run, "applying")
    depot.database.run("DROP TABLE brief")
    sink.resume(depot.context, "hiredcache")
    depot.until_phase(run, "completed")
    (said,) = run_of(Registry(depot.context.registry), run.id).plan["left_out"].values()
    assert "There is no table public.brief" in said
    assert not depot.strays()
    until(lambda: "tables remove" in depot.word("public.brief")[1], why=lambda: depot.word("public.brief"))
    depot.mended(depot.word("public.brief")[1])
    depot.assert_equal()


def test_a_table_that_cannot_be_read_anew_is_read_by_the_recovery_that_is_told(depot: Depot) -> None:
    """The last of this file: a recovery forgets the source's runs."""
    depot.stray()
    run = runs.wait(depot.context, runs.start(depot.context, "hired").id)
    assert run.plan["left_out"].keys() == {"public.odd.name"}
    assert "`headrace recover hired` reads it, too" in run.plan["left_out"]["public.odd.name"]
    depot.assert_equal()
    depot.stray()
    told = depot.refused("resnapshot", "hired", "public.items", "public.odd.name")
    assert told["code"] == "RESNAPSHOT_UNREADABLE"
    others, _, all_of_them = told["hint"].partition("; or ")
    assert shlex.split(others.split("`")[1]) == ["headrace", "resnapshot", "hired", "public.items"]
    depot.mended(others)
    depot.assert_equal()
    depot.stray()
    depot.cache.copy("hired:odd%2Ename:1", "hired:odd%2Ename:999")
    depot.mended(all_of_them)
    depot.assert_equal()
    assert depot.stored("odd%2Ename") == {str(key) for key in range(1, 11)}


CHANGED = "UPDATE items SET name = name WHERE id BETWEEN 1 AND 3"
FILLED = (
    "INSERT INTO items SELECT 1000000 + 1000000000 * random(), 'more' FROM generate_series(1, 20)"
    " ON CONFLICT DO NOTHING"
)


@contextmanager
def written(database: Database, statement: LiteralString) -> Iterator[None]:
    """Have somebody write rows all the while."""
    over = threading.Event()

    def write() -> None:
        while statement and not over.wait(0.01):
            database.run(statement)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        over.set()
        ended(writing)


@pytest.mark.parametrize("statement", ["", CHANGED, FILLED], ids=["quiet", "under writers", "while it grows"])
def test_a_run_that_passed_over_rows_removes_nothing_and_is_resumed_as_it_is_told(
    depot: Depot, statement: LiteralString
) -> None:
    """A16: they come where it has been already, and nobody is told of them."""
    depot.database.run("DELETE FROM items WHERE id < 0")
    settle(depot.context)
    depot.stray()
    run = depot.read_slowly()
    ((publication,),) = depot.database.run("SELECT quote_ident(pubname) FROM pg_publication")
    depot.database.run(
        f"ALTER PUBLICATION {publication} SET (publish = 'update, delete')",
        "INSERT INTO items SELECT -i, 'unseen' FROM generate_series(1, 50) i",
        f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate')",
    )
    with written(depot.database, statement):
        told = depot.refused("resnapshot", "wait", run.id)
    assert (told["code"], told["hint"]) == (
        "RESNAPSHOT_INCOMPLETE", f"headrace resnapshot resume {run.id}"
    )  # fmt: skip
    assert statement == FILLED or f"{ROWS + 50:,} rows" in told["message"]
    assert depot.strays() == {"999999"}
    depot.mended(told["hint"])
    # Of the publication's other table lag tells the same; what that tells reads it in another way.
    told = depot.refused("source", "refresh", "hired")
    assert told["code"] == "RESNAPSHOT_UNREADABLE"
    depot.mended(told["hint"])
    depot.assert_equal()
    depot.database.run("DELETE FROM items WHERE id > 999999")


def test_tables_that_cannot_be_read_anew_keep_no_other_from_being_followed(depot: Depot) -> None:
    grown = [f"ALTER TABLE {table} ADD COLUMN shelf int NOT NULL DEFAULT 3" for table in TABLES]
    depot.database.run(*grown)

    def shelf(name: str) -> Any:
        return json.loads(depot.cache.get(f"hired:{name}:1") or "{}").get("shelf")

    until(lambda: shelf("items") == 3)
    until(lambda: depot.word("public.items")[0] == "streaming", why=lambda: depot.word("public.items"))
    until(lambda: depot.word("public.odd.name") == ("resync_required", "headrace recover hired"))
    newest = all_of(Registry(depot.context.registry), "hired")[0]
    assert (newest.phase, newest.why) == ("completed", "columns have changed")
    assert newest.plan["left_out"].keys() == {"public.odd.name"}
    depot.mended(depot.word("public.odd.name")[1])
    depot.assert_equal()
    assert shelf("odd%2Ename") == 3
