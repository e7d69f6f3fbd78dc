"""A recovery leaves large tables to a run: the others stream meanwhile, and it goes on where it was."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.control import lag, recover
from headrace.control.connect import Connect
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry
from headrace.control.runs.repository import active
from headrace.control.runs.start import pause, resume
from headrace.model.errors import SourceError
from headrace.observe import pidfile
from tests.faults.test_first_load import ROWS, SLOWLY, TABLES, is_equal
from tests.support.mirror import Mirror, mirrored
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(500)]

NAME = "anew"
TOPIC = "anew.public.large"
SLOT = "SELECT active FROM pg_replication_slots WHERE slot_name = 'headrace_anew'"


def drop_the_slot(mirror: Mirror, *unseen: str) -> None:
    """Drop the slot, and run statements that nobody is told of."""
    with Connect(mirror.context.connect_url) as connect:
        connect.stop("headrace_anew")
    until(lambda: not mirror.database.value(SLOT))
    mirror.database.run("SELECT pg_drop_replication_slot('headrace_anew')", *unseen)


def lose_the_slot(mirror: Mirror) -> None:
    """Drop the slot; of each table a row goes and one is new, and one of the large one is changed."""
    drop_the_slot(
        mirror,
        "DELETE FROM large WHERE id = 1",
        "UPDATE large SET name = 'unseen' WHERE id = 2",
        f"INSERT INTO large VALUES ({ROWS + 1}, 'unseen')",
        "DELETE FROM small WHERE id = 1",
        "INSERT INTO small VALUES (2)",
    )

    def seen() -> bool:
        states = {one.source: one.state for one in lag.measure(mirror.context).sources}
        return states[NAME] is lag.State.RESYNC_REQUIRED

    until(seen)


def pausing(mirror: Mirror) -> Callable[[str], None]:
    """Return what pauses the run that reads the large table, amid it, when it is told something."""
    registry, kafka = Registry(mirror.context.registry), Kafka(mirror.context.kafka_bootstrap)

    def pauses(_: str) -> None:
        runs = active(registry, NAME)
        if runs and ROWS // 8 < kafka.ends([TOPIC])[TOPIC, 0][1] < ROWS:
            pause(mirror.context, runs[0].id)

    return pauses


def test_a_recovery_leaves_a_large_table_to_a_run_and_goes_on_where_it_was(stack: RunningStack) -> None:
    with mirrored(stack, NAME, *TABLES, settings=SLOWLY) as mirror:
        mirror.settle()
        context, registry = mirror.context, Registry(mirror.context.registry)
        kafka = Kafka(context.kafka_bootstrap)

        def read() -> int:
            return int(kafka.ends([TOPIC])[TOPIC, 0][1])

        lose_the_slot(mirror)
        with pytest.raises(SourceError) as caught:
            recover.recover(context, NAME, say=pausing(mirror))
        (run,) = active(registry, NAME)
        assert (caught.value.code, caught.value.hint) == (
            "RESNAPSHOT_PAUSED",
            f"headrace resnapshot resume {run.id} && headrace recover {NAME}",
        )
        # The small table streams while the large one waits, and the slot is in use.
        mirror.database.run("INSERT INTO small VALUES (3)", "DELETE FROM large WHERE id = 3")
        mirror.database.run(f"UPDATE large SET name = 'changed' WHERE id IN (4, {ROWS})")
        until(lambda: all("3" in rows for rows in mirror.stored("small").values()))
        assert mirror.database.value(SLOT)
        assert not mirror.in_sync
        half = read()
        assert half < ROWS, "it was over before it could be paused"
        pid = pidfile.alive(mirror.stack.home.pidfile("connect"))
        assert pid is not None
        resume(context, run.id)  # what was not read whole is read from its beginning
        with ThreadPoolExecutor(1) as beside:
            recovery = beside.submit(recover.recover, context, NAME)
            until(lambda: read() > half + ROWS // 8)
            os.kill(pid, signal.SIGKILL)
            broken = read() - half
            assert broken < ROWS, "it was over before it could be broken off"
            mirror.stack.stack.up()
            done = recovery.result()
        assert {found.removed for found in done.tables if found.table == "public.large"} == {2}
        assert {found.unread for found in done.tables} == {""}
        mirror.settle()
        assert is_equal(mirror)
        # Markers of transactions count as offsets.
        assert read() - half < 1.1 * ROWS + broken / 2, "it began again"


def test_a_recovery_whose_slot_is_lost_before_it_has_ended_begins_once_more(stack: RunningStack) -> None:
    with mirrored(stack, NAME, *TABLES, settings=SLOWLY) as mirror:
        mirror.settle()
        lose_the_slot(mirror)
        with pytest.raises(SourceError) as caught:
            recover.recover(mirror.context, NAME, say=pausing(mirror))
        assert caught.value.code == "RESNAPSHOT_PAUSED"
        until(lambda: all("2" in rows for rows in mirror.stored("small").values()))
        drop_the_slot(mirror, "DELETE FROM small WHERE id = 2", "UPDATE large SET name = 'too' WHERE id = 5")
        recover.recover(mirror.context, NAME)
        mirror.settle()
        assert is_equal(mirror)
