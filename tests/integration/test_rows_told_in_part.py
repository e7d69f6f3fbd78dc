"""Rows that change right while a run reads them: the stream tells of them without their large values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.control.registry import Registry
from headrace.control.runs import start as runs
from headrace.control.runs.repository import all_of
from headrace.model.errors import HeadraceError
from headrace.model.schema import TableId
from tests.support.mirror import Mirror, mirrored
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("honest"),
]

ITEMS = TableId("public", "items")
ALTERED = (7, 450, 999)
WINDOWS = 8
"""Of these the first six are of the run's own parts, the others of rows that are read once more."""
TOUCH = """
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
BEGIN
  IF NEW.type = 'snapshot-window-open' AND (SELECT count(*) FROM fired) < (SELECT most FROM allowed) THEN
    INSERT INTO fired DEFAULT VALUES;
    UPDATE items SET seen = seen + 1 WHERE id IN (7, 450, 999);
  END IF;
  RETURN NEW;
END $$
"""
TRIGGER = "CREATE TRIGGER late AFTER INSERT ON headrace.part_signal FOR EACH ROW EXECUTE FUNCTION touch()"


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        "part",
        "CREATE TABLE items (id int PRIMARY KEY, seen int NOT NULL, body text, data jsonb)",
        "ALTER TABLE items ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO items SELECT i, 0, repeat('b', 9000), '{}' FROM generate_series(1, 1000) i",
        "CREATE TABLE fired (id serial PRIMARY KEY)",
        "CREATE TABLE allowed (id int PRIMARY KEY, most int)",
        f"INSERT INTO allowed VALUES (1, {WINDOWS})",
        settings={"snapshot_chunk_rows": 200},
    ) as made:
        made.settle()
        made.database.run(TOUCH, TRIGGER)
        yield made


def hidden(mirror: Mirror, text: str) -> None:
    """Change large values so that the stream does not tell."""
    mirror.database.run(
        "ALTER PUBLICATION headrace_part DROP TABLE items",
        f"UPDATE items SET body = repeat('{text}', 9000) WHERE id IN {ALTERED}",
        "ALTER PUBLICATION headrace_part ADD TABLE items",
    )


def assert_equal(mirror: Mirror) -> None:
    mirror.settle()
    bodies = dict(mirror.database.run("SELECT id::text, body FROM items"))
    seen = dict(mirror.database.run("SELECT id::text, seen FROM items"))
    for name, rows in mirror.stored("items").items():
        wrong = [key for key, row in rows.items() if (row["body"], row["seen"]) != (bodies[key], seen[key])]
        assert (len(rows), wrong) == (1000, []), name


def test_a_row_that_was_told_in_part_is_read_once_more(mirror: Mirror) -> None:
    hidden(mirror, "c")
    runs.resnapshot(mirror.context, "part", tables=[ITEMS])
    assert_equal(mirror)
    assert mirror.database.value("SELECT count(*) FROM fired") == WINDOWS


def test_rows_that_change_all_the_time_are_told_with_what_helps(mirror: Mirror) -> None:
    mirror.database.run("UPDATE allowed SET most = 100000")
    hidden(mirror, "d")
    with pytest.raises(HeadraceError) as busy:
        runs.resnapshot(mirror.context, "part", tables=[ITEMS])
    assert busy.value.code == "RESNAPSHOT_ROWS_BUSY"
    assert not mirror.in_sync
    carry_out(busy.value.hint, mirror.stack.home.root, mirror.database.run)
    newest = all_of(Registry(mirror.context.registry), "part")[0]
    runs.wait(mirror.context, newest.id)
    mirror.database.run("DROP TRIGGER late ON headrace.part_signal")
    assert_equal(mirror)


MANY = 10_500
ONCE = """
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
BEGIN
  IF NEW.type = 'snapshot-window-open' AND NOT EXISTS (SELECT FROM fired) THEN
    INSERT INTO fired DEFAULT VALUES;
    UPDATE items SET seen = seen + 1;
  END IF;
  RETURN NEW;
END $$
"""


def test_more_rows_than_are_read_at_once_twenty_times_are_read_once_more(stack: RunningStack) -> None:
    """Its time is that of more than twenty requests to the connector, one after the other."""
    with mirrored(
        stack,
        "bulk",
        "CREATE TABLE items (id int PRIMARY KEY, seen int NOT NULL, body text) WITH (toast_tuple_target=128)",
        "ALTER TABLE items ALTER body SET STORAGE EXTERNAL",
        f"INSERT INTO items SELECT i, 0, repeat('b', 300) FROM generate_series(1, {MANY}) i",
        "CREATE TABLE fired (id serial PRIMARY KEY)",
        settings={"snapshot_chunk_rows": MANY},
    ) as made:
        made.settle()
        made.database.run(ONCE, TRIGGER.replace("part_signal", "bulk_signal"))
        made.database.run(
            "ALTER PUBLICATION headrace_bulk DROP TABLE items",
            "UPDATE items SET body = repeat('c', 300)",
            "ALTER PUBLICATION headrace_bulk ADD TABLE items",
        )
        runs.resnapshot(made.context, "bulk", tables=[ITEMS])
        made.settle()
        assert made.database.value("SELECT count(*) FROM items WHERE seen = 1") == MANY
        for name, rows in made.stored("items").items():
            assert {(row["body"], row["seen"]) for row in rows.values()} == {("c" * 300, 1)}, name
