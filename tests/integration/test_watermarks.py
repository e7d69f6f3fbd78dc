"""Rows that change at the very watermarks of a run, or in a transaction that is open around it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from headrace.control.runs import start as runs
from headrace.model.schema import TableId
from tests.support.mirror import Mirror, mirrored
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

ITEMS = TableId("public", "items")
TOUCH = """
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
DECLARE n int;
BEGIN
  INSERT INTO fired (type, moment) VALUES (NEW.type, TG_WHEN) RETURNING id INTO n;
  UPDATE items SET name = NEW.type || n WHERE id % 7 = n % 7;
  DELETE FROM items WHERE id = n OR id = 3000 - n;
  INSERT INTO items VALUES (100000 + n, 'at ' || NEW.type), (-n, 'before all');
  RETURN NEW;
END $$
"""


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        "edges",
        "CREATE TABLE items (id int PRIMARY KEY, name text)",
        "CREATE TABLE fired (id serial PRIMARY KEY, type text, moment text)",
        "INSERT INTO items SELECT i, 'n' || i FROM generate_series(1, 3000) i",
    ) as made:
        made.settle()
        yield made


def assert_equal(mirror: Mirror) -> None:
    mirror.settle()
    wanted = {str(key): {"id": key, "name": name} for key, name in mirror.database.run("TABLE items")}
    for name, rows in mirror.stored("items").items():
        assert rows == wanted, name


def test_rows_change_right_before_and_right_after_each_watermark(mirror: Mirror) -> None:
    """R5: the connector marks the low and the high end of what it reads by a row of its signal table."""
    signals = "headrace.edges_signal"
    mirror.database.run(
        TOUCH,
        f"CREATE TRIGGER early BEFORE INSERT ON {signals} FOR EACH ROW EXECUTE FUNCTION touch()",
        f"CREATE TRIGGER late AFTER INSERT ON {signals} FOR EACH ROW EXECUTE FUNCTION touch()",
    )
    try:
        runs.resnapshot(mirror.context, "edges", tables=[ITEMS])
    finally:
        mirror.database.run(f"DROP TRIGGER early ON {signals}", f"DROP TRIGGER late ON {signals}")
    fired = {(kind, moment) for kind, moment in mirror.database.run("SELECT type, moment FROM fired")}
    windows = ("snapshot-window-open", "snapshot-window-close")
    assert {(kind, moment) for kind in windows for moment in ("BEFORE", "AFTER")} <= fired
    assert_equal(mirror)


def test_a_transaction_that_was_open_all_the_while_wins(mirror: Mirror) -> None:
    """P13: the run reads the rows of before; what commits later was written to the log earlier."""
    name = "SELECT name FROM items WHERE id = 201"
    with psycopg.connect(mirror.database.dsn) as long:
        long.execute("UPDATE items SET name = 'of the long one' WHERE id BETWEEN 100 AND 200")
        long.execute("DELETE FROM items WHERE id BETWEEN 201 AND 250")
        long.execute("INSERT INTO items SELECT i, 'of the long one' FROM generate_series(5000, 5050) i")
        runs.resnapshot(mirror.context, "edges", tables=[ITEMS])
        mirror.settle()
        read = mirror.database.value(name)
        assert all(rows["201"]["name"] == read for rows in mirror.stored("items").values())
        long.commit()
    assert_equal(mirror)
