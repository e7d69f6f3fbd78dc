"""Runs that are paused, and tables that go, while others are read: neither keeps anything else from it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, ResnapshotEntry
from headrace.control.runs import start as runs
from headrace.control.runs.repository import run_of
from headrace.model.errors import SourceError
from headrace.model.schema import TableId
from tests.integration.test_runs import headrace, workers
from tests.support.mirror import Mirror, mirrored
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("honest"),
]

NAME = "halted"
AISLES, ITEMS, VISITS = (TableId("public", name) for name in ("aisles", "items", "visits"))
ITEMS_TOPIC, VISITS_TOPIC = f"{NAME}.public.items", f"{NAME}.public.visits"
ROWS = 6_000
ICU, C = 'COLLATE "und-x-icu"', 'COLLATE "C"'
FAST = ("--rows-per-second", "10000")


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        NAME,
        "CREATE TABLE aisles (id int PRIMARY KEY)",
        "CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        f"CREATE TABLE visits (shop text {ICU}, number int, who text NOT NULL, PRIMARY KEY (shop, number))",
        "INSERT INTO aisles SELECT generate_series(1, 300)",
        f"INSERT INTO items SELECT i, 'n' || i FROM generate_series(1, {ROWS}) i",
        "INSERT INTO others SELECT generate_series(1, 10)",
        r"INSERT INTO visits SELECT 'it''s \ ?' || i / 450, i, 'w' || i FROM generate_series(0, 5999) i",
        settings={"snapshot_chunk_rows": 200},
    ) as made:
        made.settle()
        yield made


def now(mirror: Mirror, run: ResnapshotEntry) -> ResnapshotEntry:
    return run_of(Registry(mirror.context.registry), run.id)


def begun(mirror: Mirror, *, whole: bool = False) -> ResnapshotEntry:
    """Return a run that has read the first of its tables, and is at the second one for a good while."""
    tables = [] if whole else [AISLES, ITEMS]
    run = runs.start(mirror.context, NAME, tables=tables, rows_per_second=200)

    def at_the_other() -> bool:
        read = now(mirror, run).counts.get("read", {})
        return read.get(f"{NAME}.public.aisles") == 300 and bool(read.get(ITEMS_TOPIC, 0) >= 1_000)

    until(at_the_other, why=lambda: (now(mirror, run).counts, now(mirror, run).reason))
    return run


@contextmanager
def asleep(pids: list[int]) -> Iterator[None]:
    """Have processes do nothing while the block runs."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def assert_equal(mirror: Mirror) -> None:
    mirror.settle()
    wanted = {str(key) for (key,) in mirror.database.run("SELECT id FROM items")}
    assert {name: rows.keys() for name, rows in mirror.stored("items").items()} == dict.fromkeys(
        mirror.stored("items"), wanted
    )


def test_a_paused_run_keeps_no_other_waiting_and_goes_on_where_it_was(mirror: Mirror) -> None:
    mirror.database.run(
        f"ALTER PUBLICATION headrace_{NAME} DROP TABLE items",
        "DELETE FROM items WHERE id <= 5",
        f"ALTER PUBLICATION headrace_{NAME} ADD TABLE items",
    )
    paused = begun(mirror)
    headrace(mirror.context, "resnapshot", "pause", paused.id)
    assert headrace(mirror.context, "resnapshot", "wait", other(mirror))["state"] == "completed"
    done = headrace(mirror.context, "resnapshot", NAME, "public.items", "--queue")
    assert {told["removed"] for told in done["removed"]} == {5}
    rests = now(mirror, paused)
    assert (rests.wanted, rests.phase, rests.plan["done"]) == (
        "pause", "reading", [f"{NAME}.public.aisles"]
    )  # fmt: skip
    for pid in workers(paused.id):
        os.kill(pid, signal.SIGKILL)
    kafka, read = Kafka(mirror.context.kafka_bootstrap), [f"{NAME}.public.aisles"]
    ends, before = kafka.ends(read), kafka.ends([ITEMS_TOPIC])
    key, rows = rests.plan["sent_up_to"][ITEMS_TOPIC]
    assert rows >= 600
    ((left,),) = mirror.database.run(f"SELECT count(*) FROM items WHERE id > {key}")
    assert left <= ROWS - 600
    done = headrace(mirror.context, "resnapshot", "resume", paused.id, *FAST)
    assert (done["state"], done["read"]) == ("completed", 300 + ROWS - 5)
    assert kafka.ends(read) == ends, "what was read is not read again"
    after = kafka.ends([ITEMS_TOPIC])
    sent = sum(after[place][1] - before[place][1] for place in before)
    assert left <= sent < left + 300, "nor the half of a table; the ends of transactions count, too"
    until(lambda: not mirror.database.run(f"TABLE headrace.{NAME}_signal"))
    assert_equal(mirror)


def at_visits(mirror: Mirror) -> ResnapshotEntry:
    """Return a run that has read a third of a table."""
    run = runs.start(mirror.context, NAME, tables=[VISITS], rows_per_second=200)
    until(lambda: now(mirror, run).counts.get("read", {}).get(VISITS_TOPIC, 0) >= 1_800)
    return run


def halted_at_visits(mirror: Mirror) -> tuple[ResnapshotEntry, str]:
    """Return a paused run that has read a third of a table, and how the last key that it has sent begins."""
    run, topic = at_visits(mirror), VISITS_TOPIC
    headrace(mirror.context, "resnapshot", "pause", run.id)
    until(lambda: topic in now(mirror, run).plan.get("sent_up_to", {}))
    return now(mirror, run), str(now(mirror, run).plan["sent_up_to"][topic][0])


def sent_until_it_is_over(mirror: Mirror, *command: str) -> tuple[int, int]:
    """Return how many records come while a command waits for a run, and how many rows all stores have then.

    Fails unless those are the rows of the database.
    """
    kafka = Kafka(mirror.context.kafka_bootstrap)
    before = kafka.ends([VISITS_TOPIC])
    assert headrace(mirror.context, "resnapshot", *command)["state"] == "completed"
    after = kafka.ends([VISITS_TOPIC])
    wanted = {
        (str(shop), str(number)) for shop, number in mirror.database.run("SELECT shop, number FROM visits")
    }
    for name, rows in mirror.stored("visits").items():
        assert {(str(row["shop"]), str(row["number"])) for row in rows.values()} == wanted, name
    return sum(after[place][1] - before[place][1] for place in before), len(wanted)


def untold(mirror: Mirror, *statements: str) -> None:
    """Change the table without a word in the log."""
    mirror.database.run(
        f"ALTER PUBLICATION headrace_{NAME} DROP TABLE visits",
        *statements,
        f"ALTER PUBLICATION headrace_{NAME} ADD TABLE visits",
    )


def heal(mirror: Mirror) -> None:
    """Read the table once more, for what was seen of it since the run before began."""
    headrace(mirror.context, "resnapshot", NAME, "public.visits")
    mirror.settle()


def test_so_does_one_that_is_at_a_table_whose_key_begins_with_a_text(mirror: Mirror) -> None:
    """Nearly two thousand rows are read at two hundred a second, so that a third of the table is read."""
    untold(mirror, "DELETE FROM visits WHERE number % 1000 = 7")
    run, shop = halted_at_visits(mirror)
    ((left,),) = mirror.database.run(f"SELECT count(*) FROM visits WHERE shop >= $key${shop}$key$")
    assert left <= 5_994 - 450
    sent, rows = sent_until_it_is_over(mirror, "resume", run.id, *FAST)
    assert left <= sent < left + 300, "only what comes after it, and the rows of that shop, are read"
    assert rows == 5_994


BY_BYTES = f"ALTER TABLE visits ALTER shop TYPE text {C}"
TURNED = "ALTER TABLE visits DROP CONSTRAINT visits_pkey, ADD PRIMARY KEY (number, shop)"


@pytest.fixture
def displaced(mirror: Mirror) -> Iterator[None]:
    """Have rows that nobody was told of come last, and in another order first; put both back at the end."""
    untold(
        mirror,
        "INSERT INTO visits SELECT 'M', -i, 'new' FROM generate_series(1, 60) i ON CONFLICT DO NOTHING",
    )
    yield
    heal(mirror)  # what was done to the key
    mirror.database.run("DELETE FROM visits WHERE number < 0")
    mirror.settle()  # the connector looks at the key when it tells of the deletes
    mirror.database.run(
        "ALTER TABLE visits DROP CONSTRAINT visits_pkey,"
        f" ALTER shop TYPE text {ICU}, ADD PRIMARY KEY (shop, number)"
    )
    heal(mirror)


@pytest.mark.usefixtures("displaced")
@pytest.mark.parametrize("statement", [BY_BYTES, TURNED])
def test_a_table_whose_rows_come_in_another_order_by_then_is_read_whole(
    mirror: Mirror, statement: str
) -> None:
    """As long as the one before. Rows that come before the last key now, and came after it, are not sent."""
    run, _ = halted_at_visits(mirror)
    mirror.database.run(statement)
    sent, rows = sent_until_it_is_over(mirror, "resume", run.id, *FAST)
    assert sent >= rows


@pytest.mark.usefixtures("displaced")
def test_one_whose_rows_come_in_another_order_while_it_is_read_is_read_once_more(mirror: Mirror) -> None:
    """A third of the table is read at two hundred rows a second, and then all of it once more."""
    run = at_visits(mirror)
    mirror.database.run(BY_BYTES)
    sent, rows = sent_until_it_is_over(mirror, "wait", run.id)
    assert sent >= rows


def other(mirror: Mirror) -> str:
    return str(headrace(mirror.context, "resnapshot", NAME, "public.others", "--no-wait")["run"])


def test_a_paused_run_without_a_process_keeps_no_other_waiting(mirror: Mirror) -> None:
    paused = begun(mirror)
    at_work = workers(paused.id)
    with asleep(at_work):
        runs.pause(mirror.context, paused.id)
        for pid in at_work:
            os.kill(pid, signal.SIGKILL)
    assert headrace(mirror.context, "resnapshot", "wait", other(mirror))["state"] == "completed"
    assert headrace(mirror.context, "resnapshot", "resume", paused.id, *FAST)["state"] == "completed"
    assert_equal(mirror)


def test_a_table_that_goes_while_another_is_read_is_left_out(mirror: Mirror) -> None:
    """The last of this file: the table does not come back."""
    mirror.database.run(
        f"ALTER PUBLICATION headrace_{NAME} DROP TABLE items",
        "DELETE FROM items WHERE id BETWEEN 10 AND 19",
        f"ALTER PUBLICATION headrace_{NAME} ADD TABLE items",
    )
    run = begun(mirror, whole=True)
    mirror.database.run("DROP TABLE others")
    with pytest.raises(SourceError) as told:
        runs.wait_whole(mirror.context, run.id)
    done = now(mirror, run)
    assert (done.phase, done.plan["left_out"].keys()) == ("completed", {"public.others"})
    assert f"headrace source tables remove {NAME} public.others" in told.value.message
    assert {tables["public.items"] for tables in done.counts["swept"].values()} == {10}
    headrace(mirror.context, "source", "tables", "remove", NAME, "public.others")
    assert_equal(mirror)
