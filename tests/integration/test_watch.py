"""What a look at the catalogue finds out about what the log does not tell, on every version of Postgres."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from connectors.watch import Sight
from headrace.model.errors import SourceError
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.standby import pair
from tests.support.untold import NAME, QUIET, SCHEMA, UNTOLD
from tests.support.waiting import elapse, until
from tests.support.wire import wire

pytestmark = pytest.mark.stack


@pytest.fixture
def database(quiet_server: str) -> Iterator[Database]:
    with fresh_database(quiet_server, NAME) as made:
        made.run(*filter(str.strip, SCHEMA.split(";")))
        yield made


def captured(database: Database) -> tuple[PostgresSource, Capture]:
    source = PostgresSource(database.dsn)
    tables = [table for table in source.tables(["public"]) if table.name not in ("attached", "tree")]
    capture = Capture(NAME, tuple(source.catalogue(tables)), "placeholder", "password")
    source.setup(capture)
    return source, capture


def codes(sight: Sight, told: Collection[str] = ()) -> dict[str, set[str]]:
    """Return table → codes, without doubts about tables of which the log tells that they were emptied."""
    found: dict[str, set[str]] = {}
    for trouble in sight.troubles:
        if trouble.unless is None or trouble.table.name not in told:
            found.setdefault(trouble.table.name, set()).add(trouble.code)
    return found


def test_each_is_seen_for_its_table_and_nothing_else_is(database: Database) -> None:
    source, capture = captured(database)
    watch = source.watch(capture)
    try:
        first = watch.look({})
        assert codes(first) == {}
        second = first
        for group in QUIET:
            database.run(*group)
            second = watch.look(second.facts)
            assert codes(second, told=("parted", "single")) == {}
        assert set(second.columns[TableId("public", "quiet")]) == {"id", "v", "n", "w", "later"}
        version = int(database.value("SHOW server_version_num"))
        untold = {
            name: done for name, done in UNTOLD.items() if version >= 150_000 or "WHERE (" not in done[1]
        }
        for _, statement in untold.values():
            database.run(*statement.split("; "))
        third = watch.look(second.facts)
        assert codes(third).keys() == untold.keys()
        assert [table for table, (code, _) in untold.items() if code not in codes(third)[table]] == []
        # What is over is told once, what lasts at each look.
        assert codes(watch.look(third.facts)).keys() == {t.table.name for t in third.troubles if t.lasts} | {
            "refused"
        }
        database.run("UPDATE refused SET v = 'free'")
        source.publish(capture)
        database.run("UPDATE refused SET v = 'still'")
    finally:
        watch.close()
        source.teardown(capture)


def test_a_declared_key_that_allows_null_is_told_until_it_does_not(database: Database) -> None:
    database.run("ALTER TABLE back REPLICA IDENTITY FULL")
    source, table = PostgresSource(database.dsn), TableId("public", "back")
    capture = Capture(NAME, tuple(source.catalogue([table], {table: ("email",)})), "placeholder", "password")
    source.setup(capture)
    watch = source.watch(capture)
    try:
        facts = watch.look({}).facts
        database.run("ALTER TABLE back ALTER email DROP NOT NULL")
        (told,) = watch.look(facts).troubles
        assert (told.code, told.lost, told.lasts) == ("KEY_NOT_UNIQUE", True, True)
        database.run(told.statement)
        assert not any(one.lasts for one in watch.look(watch.look({}).facts).troubles)
    finally:
        watch.close()
        source.teardown(capture)


def test_a_lock_upon_one_table_keeps_no_other_from_being_looked_at(database: Database) -> None:
    """An index that is made takes an hour; the table cannot be taken out of the publication meanwhile."""
    source, capture = captured(database)
    watch = source.watch(capture)
    try:
        facts = watch.look({}).facts
        database.run("ALTER TABLE refused REPLICA IDENTITY NOTHING", "ALTER TABLE quiet ADD COLUMN more int")
        with psycopg.connect(database.dsn) as other:
            other.execute("LOCK TABLE refused IN SHARE UPDATE EXCLUSIVE MODE")
            watch.look(facts)
            seen = watch.look(facts)
            (told,) = [one for one in seen.troubles if one.code == "IDENTITY_REFUSED"]
            assert "it could not be taken out" in told.reason
            assert "more" in seen.columns[TableId("public", "quiet")]
        assert "was taken out" in " ".join(one.reason for one in watch.look(facts).troubles)
        database.run("UPDATE refused SET v = 'free'")
    finally:
        watch.close()
        source.teardown(capture)


def test_row_security_that_hides_rows_from_us_is_told_until_it_is_over(database: Database) -> None:
    database.run(
        'DROP ROLE IF EXISTS "w eak"',
        'CREATE ROLE "w eak" LOGIN REPLICATION',
        'ALTER TABLE quiet OWNER TO "w eak"',
        f'GRANT CREATE ON DATABASE {NAME} TO "w eak"',
    )
    source = PostgresSource(database.dsn.replace("postgres@", "w%20eak@", 1))
    table = TableId("public", "quiet")
    capture = Capture(NAME, tuple(source.catalogue([table])), "placeholder", "password")
    source.setup(capture)
    watch = source.watch(capture)
    try:
        facts = watch.look({}).facts
        assert source.rights_now([table]) == {}
        database.run(
            "ALTER TABLE quiet ENABLE ROW LEVEL SECURITY", "ALTER TABLE quiet FORCE ROW LEVEL SECURITY"
        )
        (told,) = watch.look(facts).troubles
        assert (told.code, told.lost, told.lasts) == ("ROW_SECURITY", False, True)
        assert source.rights_now([table])[table].code == "SOURCE_ROW_SECURITY"
        database.run(told.statement)
        assert watch.look(facts).troubles == ()
        assert source.rights_now([table]) == {}
        # What may not be read is asked for before a run reads and before it sweeps.
        database.run('REVOKE ALL ON quiet FROM "w eak"')
        assert source.rights_now([table])[table].code == "SOURCE_SELECT_RIGHT"
        database.run(source.rights_now([table])[table].hint)
        assert source.rights_now([table]) == {}
        # A schema that is closed to us has tables, too; the statement that opens it is told.
        database.run('REVOKE USAGE ON SCHEMA public FROM PUBLIC, "w eak"')
        (closed,) = source.unfit_now(capture.tables).values()
        assert closed.code == "SOURCE_SELECT_RIGHT"
        database.run(closed.hint)
        assert source.unfit_now(capture.tables) == {}
        database.run("GRANT USAGE ON SCHEMA public TO PUBLIC")
    finally:
        watch.close()
        source.teardown(capture)
        database.run('REASSIGN OWNED BY "w eak" TO postgres', 'DROP OWNED BY "w eak"', 'DROP ROLE "w eak"')


def test_a_table_of_another_key_is_not_fit_to_be_read_anew(database: Database) -> None:
    database.run("CREATE TABLE pair (a int, b int, PRIMARY KEY (a, b))", "ALTER TABLE twice ADD k int")
    source = PostgresSource(database.dsn)
    pair, rekeyed, twice = (TableId("public", name) for name in ("pair", "rekeyed", "twice"))
    schemas = source.catalogue([pair, rekeyed, twice], {twice: ("k",)})
    assert source.unfit_now(schemas) == {}
    database.run(
        "ALTER TABLE pair DROP CONSTRAINT pair_pkey, ADD PRIMARY KEY (b, a)",
        "ALTER TABLE rekeyed DROP CONSTRAINT rekeyed_pkey, ADD PRIMARY KEY (email)",
    )
    found = source.unfit_now(schemas)
    assert {table: one.code for table, one in found.items()} == {rekeyed: "SOURCE_KEY_CHANGED"}
    assert found[rekeyed].message == "The key of public.rekeyed is (email) now and was (id)."


def test_a_key_whose_type_only_grows_is_the_same_key(database: Database) -> None:
    """Postgres makes its index anew, in one transaction, and keeps the rows and the index's file."""
    names, wide = ("thin", "whole", "chosen"), "ALTER k TYPE varchar({})"
    for name in names:
        database.run(
            f"CREATE TABLE {name} (k varchar(10) PRIMARY KEY, v int[])", f"INSERT INTO {name} VALUES ('a')"
        )
    database.run(
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE UNIQUE INDEX chosen_k ON chosen (k)",
        "ALTER TABLE chosen REPLICA IDENTITY USING INDEX chosen_k",
    )
    source, capture = captured(database)
    watch = source.watch(capture)
    try:
        facts = watch.look({}).facts
        database.run(*(f"ALTER TABLE {name} {wide.format(20)}" for name in names))
        grown = watch.look(facts)
        assert codes(grown) == {}
        for name in names:
            key = f"{name}_pkey"
            database.run(
                f"ALTER TABLE {name} DROP CONSTRAINT {key}",
                f"ALTER TABLE {name} ADD CONSTRAINT {key} PRIMARY KEY (k), {wide.format(30)}",
                f"ALTER TABLE {name} {wide.format(40)}",
            )
        database.run("DROP INDEX chosen_k", "CREATE UNIQUE INDEX chosen_k ON chosen (k)")
        database.run("ALTER TABLE chosen REPLICA IDENTITY USING INDEX chosen_k")
        assert codes(watch.look(grown.facts)) == {name: {"IDENTITY_TAKEN_BACK"} for name in names}
    finally:
        watch.close()
        source.teardown(capture)


def test_a_publication_that_is_changed_and_put_back_is_remembered(database: Database) -> None:
    source, capture = captured(database)
    watch = source.watch(capture)
    try:
        facts = watch.look({}).facts
        change = f"ALTER PUBLICATION headrace_{NAME} SET (publish = "
        database.run(f"{change}'insert, update')")
        lacking = watch.look(facts)
        assert {code for found in codes(lacking).values() for code in found} == {"PUBLICATION_CHANGED"}
        assert len(codes(lacking)) == len(capture.tables)
        assert len(lacking.hold.uncaptured) == len(capture.tables)
        source.publish(capture)
        facts = watch.look(lacking.facts).facts
        assert codes(watch.look(facts)) == {}
        database.run(f"{change}'insert')", f"{change}'insert, update, delete, truncate')")
        again = watch.look(facts)
        assert len(codes(again)) == len(capture.tables)
        database.run(
            f"{change}'insert')",
            f"{change}'insert, update, delete, truncate')",
            f"ALTER PUBLICATION headrace_{NAME} OWNER TO pg_monitor",
        )
        assert len(codes(watch.look(again.facts))) == len(capture.tables)
    finally:
        watch.close()
        database.run(f"ALTER PUBLICATION headrace_{NAME} OWNER TO postgres")
        source.teardown(capture)


def test_a_column_is_compared_with_what_is_mirrored_and_remembered_while_it_is_gone(
    database: Database,
) -> None:
    source, capture = captured(database)
    database.run("ALTER TABLE retyped ALTER at TYPE date", "ALTER TABLE quiet ALTER w TYPE varchar(30)")
    watch = source.watch(capture)
    try:
        first = watch.look({})  # nothing is known of before but what is registered
        assert codes(first) == {"retyped": {"COLUMN_RETYPED"}}
        assert codes(watch.look(first.facts)) == {}
        database.run("ALTER TABLE quiet DROP v", "ALTER TABLE doubled RENAME amount TO sum")
        facts = watch.look(watch.look(first.facts).facts).facts
        database.run("ALTER TABLE quiet ADD v text", "ALTER TABLE doubled RENAME sum TO amount")
        back = watch.look(facts)
        assert codes(back) == {"quiet": {"COLUMN_AWAY"}, "doubled": {"COLUMN_AWAY"}}
        assert codes(watch.look(back.facts)) == {}
    finally:
        watch.close()
        source.teardown(capture)


def test_a_database_that_has_forgotten_our_mark_went_back(database: Database) -> None:
    source, capture = captured(database)
    watch = source.watch(capture)
    try:
        second = watch.look(watch.look({}).facts)
        assert second.back == ""
        # So it is in a restored database, however far its log has grown since.
        database.run(f"UPDATE {capture.heartbeat.quoted} SET at = at - interval '1 s' WHERE id = 2")
        third = watch.look(second.facts)
        assert "restored to an earlier state" in third.back
        assert watch.look(third.facts).back == ""  # told once
        database.run(f"DELETE FROM {capture.heartbeat.quoted} WHERE id = 2")
        fourth = watch.look(third.facts)
        assert "restored to an earlier state" in fourth.back
        assert "restored to an earlier state" in watch.look(third.facts).back  # until it is noted
        watch.look(fourth.facts)
        # Another installation's registry, or one that was put back, knows less than the database.
        assert watch.look(second.facts).back == ""
    finally:
        watch.close()


def test_a_mark_is_renewed_every_ten_seconds_and_only_grows(database: Database) -> None:
    source, capture = captured(database)
    mark = f"SELECT at FROM {capture.heartbeat.quoted} WHERE id = 2"
    watch = source.watch(capture)
    try:
        watch.look({})
        first = database.value(mark)
        watch.look({})
        assert database.value(mark) == first
        database.run(f"UPDATE {capture.heartbeat.quoted} SET at = at - interval '11 s' WHERE id = 2")
        watch.look({})
        assert database.value(mark) > first
        database.run(f"UPDATE {capture.heartbeat.quoted} SET at = at + interval '1 h' WHERE id = 2")
        ahead = database.value(mark)
        watch.look({})
        assert database.value(mark) == ahead
    finally:
        watch.close()


def test_a_count_of_all_rows_gives_way_to_who_waits_for_the_table(database: Database) -> None:
    """It reads one partition, and waits for another: so long it holds a lock upon the whole."""
    source, capture = captured(database)
    watch = source.watch(capture)
    parted = TableId("public", "parted")

    def waits(what: str) -> object:
        return database.value(
            f"SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{what}'::regclass"
        )

    try:
        facts = watch.look({}).facts
        with psycopg.connect(database.dsn) as holder, ThreadPoolExecutor(2) as pool:
            holder.execute("LOCK TABLE parted_b IN ACCESS EXCLUSIVE MODE")
            counting = pool.submit(source.count_rows, capture, parted)
            until(lambda: waits("parted_b"))
            statement = "BEGIN; LOCK TABLE ONLY parted IN ACCESS EXCLUSIVE MODE; COMMIT"
            application = pool.submit(database.run, statement)
            until(lambda: waits("parted"))

            def gone() -> bool:
                with suppress(SourceError):  # a table that is locked cannot be looked at
                    watch.look(facts)
                return counting.done()

            until(gone)
            ended = counting.exception()
            assert isinstance(ended, SourceError)
            assert ended.code == "SOURCE_GAVE_WAY"
            application.result()
        assert source.count_rows(capture, parted).rows == 15
    finally:
        watch.close()
        source.teardown(capture)


def test_a_server_that_takes_over_by_name_is_seen_though_the_former_one_lives_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing ends the session with the former one, which answers as ever."""
    with pair() as servers, wire("127.0.0.1", servers.primary.port) as name:
        former = Database(servers.dsn)
        former.run("CREATE TABLE t (id int PRIMARY KEY)")
        source = PostgresSource(servers.dsn.replace(str(servers.primary.port), str(name.port)))
        capture = Capture(NAME, tuple(source.catalogue(source.tables(["public"]))), "placeholder", "password")
        source.setup(capture)
        by_age, by_word, anew = (source.watch(capture) for _ in range(3))
        try:
            sight = by_age.look({})
            assert [one.hold.timeline for one in (sight, by_word.look(sight.facts))] == [1, 1]
            until(lambda: servers.standby.value(f"SELECT to_regclass('{capture.heartbeat.quoted}')"))
            servers.standby.value("SELECT pg_promote()")
            name.lead_to("127.0.0.1", servers.standby.port)
            opened = name.connections
            assert by_age.look(sight.facts).hold.timeline == 1
            assert name.connections == opened  # a look costs no connection
            later = anew.look(sight.facts)
            assert later.hold.timeline == 2
            assert by_word.look(later.facts).hold.timeline == 2  # as another look has seen
            monkeypatch.setattr("connectors.postgres.watch._KEPT_S", 0.1, raising=False)
            elapse(0.2)
            last = by_age.look(sight.facts)
            assert (last.hold.timeline, last.troubles) == (2, ())
        finally:
            for watch in (by_age, by_word, anew):
                watch.close()
            source.teardown(capture)
