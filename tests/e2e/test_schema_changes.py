"""A table that changes under the stream: seen at the first record, followed on demand, equal again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.pipeline import SchemaPolicy
from headrace.control import lag, sink
from tests.support.mirror import Mirror, mirrored, store_settings
from tests.support.remedy import bare, carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400), pytest.mark.usefixtures("honest")]


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        "alter",
        "CREATE TABLE things (id int PRIMARY KEY, name text, size int)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "CREATE TABLE prices (id int PRIMARY KEY, amount numeric(10, 2))",
        "INSERT INTO things SELECT i, 'n' || i, i FROM generate_series(1, 50) i",
        policies={"cache": SchemaPolicy.IGNORE, "lake": SchemaPolicy.EXCEPTION},
    ) as made:
        until(lambda: made.in_sync)
        yield made


def refresh(mirror: Mirror, *arguments: str, code: int = 0) -> dict[str, Any]:
    command = ["source", "refresh", "alter", "--json", *arguments, "--home", str(mirror.stack.home.root)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == code, done.output
    said: dict[str, Any] = json.loads(bare(done.output.splitlines()[-1]))
    return said


def reasons(mirror: Mirror, name: str = "things") -> set[str]:
    return {found.reason for found in lag.measure(mirror.context).tables if found.table == f"public.{name}"}


def remedy(mirror: Mirror) -> str:
    (told,) = {found.remedy for found in lag.measure(mirror.context).tables if found.table == "public.things"}
    return told


def assert_equal(mirror: Mirror) -> None:
    """Compare every row in every sink with the table as it is now."""
    names = [column.name for column in mirror.schema("things").columns]
    listed = ", ".join(f'"{name}"' for name in names)
    wanted = {str(row[0]): row for row in mirror.database.run(f"SELECT {listed} FROM things")}
    for rows in mirror.stored("things").values():
        assert {key: tuple(row.get(name) for name in names) for key, row in rows.items()} == wanted


def state_of(mirror: Mirror, sink: str) -> tuple[str, str]:
    """Return what lag says of the table of things in one sink, and why."""
    found = [t for t in lag.measure(mirror.context).tables if t.table == "public.things" and t.sink == sink]
    return found[0].state.value, found[0].reason


def events(mirror: Mirror) -> list[str]:
    """Return what the journal tells of the source."""
    command = ["journal", "--source", "alter", "--json", "--home", str(mirror.stack.home.root)]
    return [line["event"] for line in json.loads(CliRunner().invoke(app, command).output)]


def column(mirror: Mirror, sink: str, name: str) -> dict[str, Any]:
    """Return what a sink's rows have in one column, by key; rows without it are left out."""
    return {key: row[name] for key, row in mirror.stored("things")[sink].items() if name in row}


def test_each_sink_does_as_it_was_told_when_a_column_is_added(mirror: Mirror) -> None:
    """Four policies have to be carried out, and one table read anew, before all of them can be held apart."""
    assert_equal(mirror)
    mirror.database.run(
        "BEGIN; INSERT INTO things VALUES (51, 'before', 51);"
        " ALTER TABLE things ADD COLUMN colour text DEFAULT 'grey';"
        " INSERT INTO things VALUES (52, 'after', 52, 'red'); COMMIT"
    )
    # Lenient: it follows by itself, and rows of before get the default.
    until(lambda: "columns changed" in events(mirror))
    wanted = {**{str(n): "grey" for n in range(1, 52)}, "52": "red"}
    until(lambda: column(mirror, "altersearch", "colour") == wanted)
    until(lambda: state_of(mirror, "altersearch") == ("streaming", ""))
    # Ignore: it goes on without the column, and says so.
    until(lambda: "ignored" in state_of(mirror, "altercache")[1])
    assert state_of(mirror, "altercache")[0] == "streaming"
    assert column(mirror, "altercache", "name")["52"] == "after"
    assert not any(column(mirror, "altercache", "colour").values())
    # Exception: rows of another shape are set aside, those of before stay.
    until(lambda: state_of(mirror, "alterlake")[0] == "degraded")
    assert "52" not in column(mirror, "alterlake", "name")
    assert {why.partition(": ")[2] for why in mirror.letters} == {"columns added: colour"}
    assert not mirror.in_sync

    (said,) = refresh(mirror, "--dry-run")["changed"]
    assert (said["table"], said["added"]) == ("public.things", ["colour"])
    refresh(mirror)
    mirror.settle()
    assert_equal(mirror)
    assert refresh(mirror, "--dry-run")["changed"] == []
    assert events(mirror).count("columns changed") == 2


def test_a_refresh_without_rereading_is_not_green(mirror: Mirror) -> None:
    mirror.database.run("ALTER TABLE things ADD COLUMN weight int DEFAULT 7")
    refresh(mirror, "--no-resnapshot")
    until(lambda: all("older than" in reason for reason in reasons(mirror)))
    assert not mirror.in_sync  # rows of before lack the default
    # A sink that comes now takes from the topic what that tells.
    settings = {**store_settings(mirror.stack, "alter")["redis"], "key_prefix": "late:"}
    sink.add(mirror.context, "alterlate", "redis", settings=settings, source="alter")
    until(lambda: state_of(mirror, "alterlate")[0] == "resync_required")
    carry_out(remedy(mirror), mirror.stack.home.root, mirror.database.run)
    mirror.settle()
    assert_equal(mirror)
    sink.remove(mirror.context, "alterlate", purge=True)


def test_a_renamed_and_a_dropped_column_are_followed(mirror: Mirror) -> None:
    """Each change is followed by reading the table anew, which three stores have to show."""
    mirror.database.run(
        "ALTER TABLE things RENAME COLUMN name TO title",
        "ALTER TABLE things DROP COLUMN colour",
        "UPDATE things SET title = 'renamed' WHERE id = 1",
    )
    until(lambda: state_of(mirror, "altersearch") == ("streaming", ""))
    until(lambda: column(mirror, "altersearch", "title").get("50") == "n50")
    (said,) = refresh(mirror)["changed"]
    assert (said["added"], sorted(said["dropped"])) == (["title"], ["colour", "name"])
    mirror.database.run("DELETE FROM things WHERE id = 2", "INSERT INTO things VALUES (60, 'new', 60)")
    mirror.settle()
    assert_equal(mirror)


@pytest.mark.deep
def test_a_type_that_one_store_cannot_follow_is_filled_anew_beside_what_it_serves(mirror: Mirror) -> None:
    """A shadow has to be filled and switched, while readers go on finding what was served before."""
    until(lambda: mirror.in_sync)
    mirror.database.run("ALTER TABLE things ALTER COLUMN size TYPE bigint")
    error = refresh(mirror, "--no-resnapshot", code=1)["error"]
    told = "headrace resnapshot alter public.things"
    assert (error["code"], error["hint"]) == ("ES_MAPPING_CONFLICT", told)
    assert state_of(mirror, "altersearch")[0] == "resync_required"
    # The others have followed, and that one serves on.
    large = 5_000_000_000
    mirror.database.run(f"UPDATE things SET size = {large} WHERE id = 3")
    until(
        lambda: column(mirror, "altercache", "size")["3"] == column(mirror, "alterlake", "size")["3"] == large
    )
    assert column(mirror, "altersearch", "size")["4"] == 4
    assert not mirror.in_sync
    carry_out(told, mirror.stack.home.root, mirror.database.run)
    mirror.settle()
    assert_equal(mirror)
    mirror.database.run("ALTER TABLE things ALTER COLUMN size TYPE text")
    until(lambda: remedy(mirror) == "headrace source refresh alter")
    carry_out(remedy(mirror), mirror.stack.home.root, mirror.database.run)
    mirror.settle()
    assert_equal(mirror)
    mirror.database.run("UPDATE things SET size = 'many' WHERE id = 5")
    mirror.settle()
    assert_equal(mirror)


@pytest.mark.deep
def test_more_digits_of_a_numeric_are_followed_before_a_store_has_to_refuse_them(mirror: Mirror) -> None:
    """The watcher has to see it, and a sink of this policy waits for a person."""
    until(lambda: mirror.in_sync)
    mirror.database.run("ALTER TABLE prices ALTER amount TYPE numeric(12, 2)")
    until(lambda: any("columns of other digits: amount" in why for why in reasons(mirror, "prices")))
    refresh(mirror)
    mirror.database.run("INSERT INTO prices VALUES (1, 9999999999.99)")
    mirror.settle()
    assert [str(rows["1"]["amount"]) for rows in mirror.stored("prices").values()] == ["9999999999.99"] * 3


@pytest.mark.deep
def test_a_namesake_that_came_later_is_mended_as_it_is_told(mirror: Mirror) -> None:
    """The watcher has to see it come and go, and three stores are filled anew."""
    until(lambda: mirror.in_sync)
    mirror.database.run('CREATE TABLE public."numeric" (id int PRIMARY KEY)')
    until(lambda: any('has a namesake, public."numeric"' in why for why in reasons(mirror, "prices")))
    mirror.database.run(
        'ALTER TABLE public."numeric" RENAME TO another', "INSERT INTO prices VALUES (2, 2.5)"
    )
    refresh(mirror)
    mirror.settle()
    assert [str(rows["2"]["amount"]) for rows in mirror.stored("prices").values()] == ["2.50"] * 3


@pytest.mark.deep
def test_a_table_that_is_dropped_and_made_anew_is_noticed_and_followed(mirror: Mirror) -> None:
    until(lambda: mirror.in_sync)
    mirror.database.run("DROP TABLE things")
    until(lambda: all("the publication lacks the table" in reason for reason in reasons(mirror)))
    assert refresh(mirror, "--dry-run")["changed"] == []
    until(lambda: remedy(mirror) == "headrace source tables remove alter public.things")
    mirror.database.run(
        "CREATE TABLE things (id int PRIMARY KEY, title text, weight int)",
        "INSERT INTO things SELECT i, 'again' || i, 0 FROM generate_series(40, 70) i",
    )
    (said,) = refresh(mirror)["changed"]
    assert said["recreated"]
    mirror.database.run("UPDATE things SET title = 'streamed' WHERE id = 41")
    mirror.settle()
    assert_equal(mirror)


def test_a_changed_key_is_refused(mirror: Mirror) -> None:
    mirror.database.run("ALTER TABLE others ADD COLUMN b int NOT NULL DEFAULT 1")
    mirror.database.run("ALTER TABLE others DROP CONSTRAINT others_pkey, ADD PRIMARY KEY (id, b)")
    assert refresh(mirror, "--dry-run", code=1)["error"]["code"] == "SOURCE_KEY_CHANGED"


def test_rows_of_another_key_are_never_taken_for_one_another(mirror: Mirror) -> None:
    mirror.database.run("INSERT INTO others VALUES (1, 1), (1, 2) ON CONFLICT DO NOTHING")
    until(lambda: all("the table's key is (id, b) now" in reason for reason in reasons(mirror, "others")))
    assert {t.state for t in lag.measure(mirror.context).tables if t.table == "public.others"} == {"failed"}
    assert all(not rows for rows in mirror.stored("others").values())
    until(lambda: len(mirror.letters) == 2 * 3)
    mirror.database.run("UPDATE things SET title = 'goes on' WHERE id = 44")
    until(lambda: all(rows["44"]["title"] == "goes on" for rows in mirror.stored("things").values()))
    assert_equal(mirror)
