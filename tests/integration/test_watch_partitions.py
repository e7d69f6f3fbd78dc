"""What a look says of partitions that came or were rewritten, also where it cannot know that at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource, asking, partitions
from connectors.postgres.asking import Asking, Unknown
from connectors.watch import Sight, Trouble, Watch
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.waiting import until

pytestmark = pytest.mark.stack

NAME = "parts"
SCHEMA = (
    "CREATE TABLE parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE old PARTITION OF parted FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE new PARTITION OF parted FOR VALUES FROM (100) TO (200)",
    "CREATE TABLE none PARTITION OF parted FOR VALUES FROM (900) TO (999)",
    "INSERT INTO parted SELECT i * 10, 'v' FROM generate_series(0, 15) i",
)
_ROWS = "SELECT sum(n_live_tup) FROM pg_stat_user_tables WHERE schemaname = 'public'"
_SLOW = "pg_sleep(100) IS NULL OR {} IS NULL OR {} IS NULL OR {} IS NULL"
_ASKING = """
SELECT count(*) FROM pg_stat_activity
WHERE state = 'active' AND query LIKE '%pg_sleep(100)%' AND pid <> pg_backend_pid()
"""


@pytest.fixture
def database(quiet_server: str) -> Iterator[Database]:
    with fresh_database(quiet_server, NAME) as made:
        made.run(*SCHEMA)
        until(lambda: made.value(_ROWS) == 16)  # those who write report it a moment later
        yield made


@contextmanager
def watching(database: Database, dsn: str = "") -> Iterator[Watch]:
    source = PostgresSource(dsn or database.dsn)
    tables = tuple(source.catalogue(source.tables(["public"])))
    capture = Capture(NAME, tables, "placeholder", "password")
    source.setup(capture)
    watch = source.watch(capture)
    try:
        yield watch
    finally:
        watch.close()
        source.teardown(capture)


def codes(sight: Sight) -> set[str]:
    return {trouble.code for trouble in sight.troubles}


def until_emptied(watch: Watch, sight: Sight) -> Sight:
    """Look again until a partition is told as emptied; no look may find nothing wrong."""

    def told() -> bool:
        nonlocal sight
        sight = watch.look(sight.facts)
        assert codes(sight)
        return codes(sight) == {"PARTITION_EMPTIED"}

    until(told)
    return sight


@pytest.mark.parametrize("rewriting", ["VACUUM FULL new", "CLUSTER new USING new_pkey", "VACUUM FULL"])
def test_a_partition_that_is_truncated_and_rewritten_between_two_looks_has_lost_rows(
    database: Database, rewriting: str
) -> None:
    with watching(database) as watch:
        first = watch.look({})
        database.run("TRUNCATE new", rewriting)
        second = until_emptied(watch, first)
        (told,) = second.troubles
        assert told.lost
        assert "new was emptied" in told.reason
        assert codes(watch.look(second.facts)) == set()  # told once


@pytest.mark.deep
def test_a_truncate_of_the_whole_table_before_a_rewriting_is_among_those_that_may_have_done_it(
    database: Database,
) -> None:
    """Else what the log tells of it would not take the doubt back."""
    with watching(database) as watch:
        sight = watch.look({})
        number = "SELECT pg_current_xact_id()::text::bigint"
        with psycopg.connect(database.dsn) as other:
            other.execute("TRUNCATE parted")
            by = other.execute(number).fetchone()
        database.run("VACUUM FULL")
        assert by is not None
        for told in until_emptied(watch, sight).troubles:
            assert told.unless is not None
            assert told.unless[0] <= by[0] <= told.unless[1]


@pytest.mark.deep
def test_a_partition_that_is_truncated_before_the_root_is_altered_has_lost_rows(database: Database) -> None:
    """ALTER TABLE writes every row anew: none shows any more that it is of before."""
    with watching(database) as watch:
        sight = watch.look({})
        database.run("ALTER TABLE parted ADD COLUMN chance float DEFAULT random()")
        sight = watch.look(sight.facts)
        assert codes(sight) == set()
        database.run("TRUNCATE new")
        until(lambda: database.value("SELECT pg_stat_get_live_tuples('new'::regclass)") == 0)
        database.run("ALTER TABLE parted ADD COLUMN more float DEFAULT random()")
        assert codes(watch.look(sight.facts)) == {"PARTITION_EMPTIED"}


def test_a_partition_without_rows_that_is_rewritten_has_lost_none(database: Database) -> None:
    with watching(database) as watch:
        sight = watch.look({})
        database.run("VACUUM FULL", 'CLUSTER none USING "none_pkey"')
        assert codes(watch.look(sight.facts)) == set()


def test_a_partition_that_is_rewritten_after_its_rows_were_deleted_has_lost_none(database: Database) -> None:
    """Before version 15 the numbers of rows may be lost on their way, and nothing proves the deletes."""
    with watching(database) as watch:
        sight = watch.look({})
        with psycopg.connect(database.dsn, autocommit=True) as other:  # reports late, when it is idle
            other.execute("INSERT INTO parted VALUES (5)")
            other.execute("DELETE FROM parted WHERE id >= 100")
            other.execute("VACUUM FULL new")
            if int(database.value("SHOW server_version_num")) < 150_000:
                until_emptied(watch, sight)
                return
            sight = watch.look(sight.facts)
            assert codes(sight) <= {"PARTITION_UNREAD"}  # at once, or when they have reported
        until(lambda: database.value("SELECT pg_stat_get_live_tuples('new'::regclass)") == 0)
        assert codes(watch.look(sight.facts)) == set()


@pytest.mark.deep
@pytest.mark.parametrize("counting", ["VACUUM FULL new", "ANALYZE new"])
def test_numbers_that_a_crash_has_set_to_zero_do_not_make_a_partition_empty(
    database: Database, counting: str
) -> None:
    database.run("SELECT pg_stat_reset()")
    with watching(database) as watch:
        sight = watch.look({})
        sight = watch.look(sight.facts)
        database.run("TRUNCATE new", counting)
        until_emptied(watch, sight)


def test_a_partition_may_have_any_name(database: Database) -> None:
    with watching(database) as watch:
        sight = watch.look({})
        database.run(*attached('"5%s"', 200, 300))
        sight = watch.look(sight.facts)
        assert codes(sight) == set()
        database.run('VACUUM FULL "5%s"')
        assert codes(watch.look(sight.facts)) == set()


def attached(name: str, first: int, last: int) -> tuple[str, str]:
    """Return what makes a table and then a partition of it: its rows have to be looked at."""
    made = f"CREATE TABLE {name} (LIKE parted INCLUDING ALL)"
    return made, f"ALTER TABLE parted ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({last})"


def the_one(sight: Sight) -> Trouble:
    (told,) = sight.troubles
    return told


def test_a_partition_that_is_locked_is_asked_again_until_it_answers(database: Database) -> None:
    with watching(database) as watch:
        sight = watch.look({})
        database.run(*attached("more", 200, 300))
        with psycopg.connect(database.dsn) as other:
            other.execute("LOCK TABLE more IN ACCESS EXCLUSIVE MODE")
            for _ in range(9):  # however long that takes
                sight = watch.look(sight.facts)
                told = the_one(sight)
                assert (told.code, told.lost, told.lasts) == ("PARTITION_UNREAD", False, True)
                assert "more" in told.reason
        assert codes(watch.look(sight.facts)) == set()
        with psycopg.connect(database.dsn) as other:
            database.run("CREATE TABLE had (LIKE parted INCLUDING ALL)", "INSERT INTO had VALUES (350)")
            database.run("ALTER TABLE parted ATTACH PARTITION had FOR VALUES FROM (300) TO (400)")
            other.execute("LOCK TABLE had IN ACCESS EXCLUSIVE MODE")
            sight = watch.look(sight.facts)
            assert codes(sight) == {"PARTITION_UNREAD"}
        assert codes(watch.look(sight.facts)) == {"PARTITION_CAME"}


@pytest.mark.deep
def test_a_partition_that_never_answers_in_time_counts_as_the_worst(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watching(database) as watch:
        sight = watch.look({})
        database.run(
            *attached("more", 1000, 900000),
            "INSERT INTO parted SELECT i FROM generate_series(1000, 300000) i",
        )
        monkeypatch.setattr("connectors.postgres.asking._FOR_ALL_S", 0.001)
        seen = []
        for _ in range(5):
            sight = watch.look(sight.facts)
            seen.append(codes(sight))
        assert seen == [{"PARTITION_UNREAD"}] * 4 + [{"PARTITION_CAME"}]


@pytest.mark.deep
def test_a_partition_of_dead_rows_is_read_again_only_when_some_are_gone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = "FROM pg_stat_user_tables WHERE relname = 'more'"
    database.run(
        "CREATE TABLE more PARTITION OF parted FOR VALUES FROM (1000) TO (900000)",
        "INSERT INTO parted SELECT i FROM generate_series(1000, 300000) i",
        "DELETE FROM parted WHERE id >= 1000",
    )
    until(lambda: database.value(f"SELECT n_live_tup = 0 AND n_dead_tup > 0 {counted}"))
    asked: list[str] = []
    holds = Asking.holds

    def slow(self: Asking, unit: Mapping[str, Any], *told: Any) -> bool | Unknown:
        if "more" not in unit["name"]:
            return holds(self, unit, *told)
        asked.append(unit["name"])
        return Unknown("it did not answer in time", tried=True)

    with watching(database) as watch:
        with monkeypatch.context() as patched:
            patched.setattr(Asking, "holds", slow)
            sight = watch.look({})
            for _ in range(5):
                sight = watch.look(sight.facts)
        assert len(asked) == 1
        database.run("VACUUM more")
        until(lambda: database.value(f"SELECT n_dead_tup = 0 {counted}"))
        sight = watch.look(sight.facts)
        database.run("VACUUM FULL more")
        assert codes(watch.look(sight.facts)) == set()


@pytest.fixture
def weak(database: Database) -> Iterator[str]:
    """Yield the URL of a role that owns the table and what it is made of."""
    database.run(
        'DROP ROLE IF EXISTS "w eak"',
        'CREATE ROLE "w eak" LOGIN REPLICATION',
        *(f'ALTER TABLE {name} OWNER TO "w eak"' for name in ("parted", "old", "new", "none")),
        f'GRANT CREATE ON DATABASE {NAME} TO "w eak"',
    )
    yield database.dsn.replace("postgres@", "w%20eak@", 1)
    database.run('REASSIGN OWNED BY "w eak" TO postgres', 'DROP OWNED BY "w eak"', 'DROP ROLE "w eak"')


def test_a_right_to_read_a_partition_is_asked_for_with_the_statement_that_gives_it(
    database: Database, weak: str
) -> None:
    with watching(database, weak) as watch:
        sight = watch.look({})
        database.run(
            "CREATE SCHEMA closed",
            *attached("closed.more", 200, 300),
            "INSERT INTO parted VALUES (250)",
        )
        for _ in range(9):
            sight = watch.look(sight.facts)
            told = the_one(sight)
            assert (told.code, told.lost, told.lasts) == ("PARTITION_UNREAD", False, True)
        database.run(*filter(str.strip, the_one(sight).statement.split(";")))
        sight = watch.look(sight.facts)
        assert codes(sight) == set()
        database.run('REVOKE SELECT ON closed.more FROM "w eak"', "VACUUM FULL closed.more")
        sight = watch.look(sight.facts)
        assert codes(sight) == {"PARTITION_UNREAD"}
        database.run(the_one(sight).statement)
        assert codes(watch.look(sight.facts)) == set()


def test_row_security_upon_a_partition_does_not_make_it_one_without_rows(
    database: Database, weak: str
) -> None:
    with watching(database, weak) as watch:
        sight = watch.look({})
        database.run(
            "CREATE TABLE had (LIKE parted INCLUDING ALL)",
            "INSERT INTO had VALUES (350)",
            'GRANT SELECT ON had TO "w eak"',
            "ALTER TABLE had ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE parted ATTACH PARTITION had FOR VALUES FROM (300) TO (400)",
        )
        sight = watch.look(sight.facts)
        assert codes(sight) == {"PARTITION_UNREAD"}
        database.run(the_one(sight).statement)
        assert codes(watch.look(sight.facts)) == {"PARTITION_CAME"}


def test_a_question_about_rows_gives_way_to_whoever_waits_for_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_OF_BEFORE_COMING", _SLOW)
    monkeypatch.setattr(asking, "_FOR_ALL_S", 20.0)
    with watching(database) as watch, ThreadPoolExecutor(1) as beside:
        before = watch.look({})
        database.run(
            *attached("late", 200, 300),
            "INSERT INTO parted VALUES (250, 'v')",
        )
        look = beside.submit(watch.look, before.facts)
        until(lambda: database.value(_ASKING))
        database.run("TRUNCATE late")
        sight = look.result()
        (question,) = sight.facts[TableId("public", "parted").quoted]["questions"]
        # One that had its time counts as a try, and after five of them rows are told as lost.
        assert (question["code"], question["tries"]) == ("PARTITION_CAME", 0)
        assert codes(sight) == {"PARTITION_UNREAD"}


@pytest.mark.deep
def test_a_partition_that_is_made_on_demand_within_an_exception_block_has_no_row_of_before(
    database: Database,
) -> None:
    """The partition has the number of the inner transaction, which is above that of its rows."""
    with watching(database) as watch:
        before = watch.look({})
        database.run(
            "DO $$ BEGIN INSERT INTO parted VALUES (5, 'v');"
            " BEGIN CREATE TABLE late PARTITION OF parted FOR VALUES FROM (200) TO (300);"
            " EXCEPTION WHEN duplicate_table THEN NULL; END;"
            " INSERT INTO parted VALUES (250, 'v'); END $$"
        )
        assert codes(watch.look(before.facts)) == set()
