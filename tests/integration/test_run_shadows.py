"""Runs that fill shadows in all three stores and do not come to their end: what was served serves on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.kafka import KafkaAddress
from headrace.control import lag, sink
from headrace.control.kafka import Kafka
from headrace.control.recovery.left_out import LeftOut, tell
from headrace.control.registry import Registry
from headrace.control.runner import ensure_engine, stop_engine
from headrace.control.runs import start as runs
from headrace.control.runs.repository import run_of
from headrace.model.schema import TableId
from tests.support.leftovers import left_by_shadows
from tests.support.locked import redis_locked
from tests.support.mirror import KINDS, Mirror, mirrored
from tests.support.patience import WAIT_S
from tests.support.remedy import bare, carry_out, refused, steps
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("honest"),
]

NAME = "beside"
AGAIN = f"headrace resnapshot {NAME} public.things"
SINKS = [f"{NAME}{short}" for short in KINDS]
LOST = 400
"""So many rows go unseen at a time: more than a run removes without being told to."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A table in three stores, each of whose targets the next run makes anew."""

    mirror: Mirror

    def headrace(self, *words: str) -> str:
        """Run a command of the installation; return what it prints."""
        return carry_out(f"headrace {' '.join(words)}", self.mirror.stack.home.root, self.mirror.database.run)

    def condemned(self) -> None:
        """Have status say of each target what a recovery says that had to leave it out."""
        self.condemn("public.things")
        assert {state for state, _ in self.told()} == {lag.State.RESYNC_REQUIRED}

    def condemn(self, table: str) -> None:
        """Note so of the targets of one table."""
        source = Registry(self.mirror.context.registry).source(NAME)
        for name in SINKS:
            left = LeftOut(name, table, "TARGET_BROKEN", "it refuses", AGAIN)
            tell(Registry(self.mirror.context.registry), source, left)

    def told(self) -> set[tuple[lag.State, str]]:
        """Return what status says of the table in each sink, and what mends it."""
        tables = lag.measure(self.mirror.context).tables
        return {(found.state, found.remedy) for found in tables if found.table == "public.things"}

    def lost(self) -> None:
        """Have the targets condemned, and the stores hold rows that the database does not, untold."""
        self.mirror.settle()
        self.mirror.database.run(
            f"INSERT INTO things SELECT i, 'goes' FROM generate_series(10001, {10000 + LOST}) i"
        )
        self.mirror.settle()
        self.condemned()  # before the watcher sees what comes: the older verdict is the one that is told
        self.mirror.database.run(
            f"ALTER PUBLICATION headrace_{NAME} DROP TABLE things",
            "DELETE FROM things WHERE id > 10000",
            f"ALTER PUBLICATION headrace_{NAME} ADD TABLE things",
        )

    def shadows(self) -> dict[str, set[str]]:
        """Return where → what is there of shadows: in the stores, and for the engine."""
        return left_by_shadows(self.mirror)

    def stored(self) -> dict[str, set[str]]:
        """Return sink → the keys that readers find."""
        return {name: set(rows) for name, rows in self.mirror.stored("things").items()}

    def wanted(self) -> dict[str, dict[str, Any]]:
        """Return the rows that the database has."""
        return {
            str(row["id"]): row for (row,) in self.mirror.database.run("SELECT to_jsonb(t) FROM things t")
        }

    def assert_equal(self) -> None:
        """Fail unless status is green, every store holds what the database does, and no shadow is left."""
        self.mirror.settle()
        wanted = self.wanted()
        for name, rows in self.mirror.stored("things").items():
            assert rows == wanted, name
        until(lambda: self.shadows() == {}, why=self.shadows)

    def unfinished(self) -> str:
        """Return a run that has filled its shadows, and waits for a person's word."""
        told = refused(self.mirror.stack.home.root, "resnapshot", NAME, "public.things")
        assert told["code"] == "RESNAPSHOT_SWEEP_LARGE"
        found = self.shadows()
        assert {"search", "cache", "lake"} <= found.keys()
        assert {name.partition(".")[0] for name in found["engine"]} == set(SINKS)
        return str(told["hint"].split()[3])

    def followed(self) -> None:
        """Carry out what status tells of the table, as often as it tells something."""
        for _ in range(8):
            until(lambda: any(remedy for _, remedy in self.told()) or self.mirror.in_sync, why=self.told)
            remedies = sorted({remedy for _, remedy in self.told() if remedy})
            if not remedies:
                return
            _, words = steps(remedies[0])
            done = CliRunner().invoke(app, [*words, "--json", "--home", str(self.mirror.stack.home.root)])
            if done.exit_code:
                hint = json.loads(bare(done.stderr.splitlines()[-1]))["error"]["hint"]
                carry_out(hint, self.mirror.stack.home.root, self.mirror.database.run)
        pytest.fail(f"there is no end to what is told: {self.told()}")

    def mended(self) -> None:
        """Carry out what is told until all is well: the table is read anew, and many rows may go."""
        (remedy,) = {remedy for _, remedy in self.told()}
        told = refused(self.mirror.stack.home.root, *steps(remedy)[1])
        assert told["code"] == "RESNAPSHOT_SWEEP_LARGE"
        carry_out(told["hint"], self.mirror.stack.home.root, self.mirror.database.run)
        self.assert_equal()


def dropped(bootstrap: str, topic: str) -> None:
    """Have Kafka let go of every record of a topic."""
    place = Kafka(bootstrap).ends([topic])[topic, 0]
    admin = AdminClient({**KafkaAddress.parse(bootstrap).librdkafka()})
    for future in admin.delete_records([TopicPartition(topic, 0, place[1])]).values():
        future.result(WAIT_S)


@pytest.fixture(scope="module")
def beside(stack: RunningStack) -> Iterator[Beside]:
    with mirrored(
        stack,
        NAME,
        "CREATE TABLE things (id int PRIMARY KEY, v text, n int, gone int)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "INSERT INTO things SELECT i, 'v' || i, i FROM generate_series(1, 300) i",
    ) as made:
        made.settle()
        yield Beside(made)


def test_an_abort_of_an_unfinished_run_leaves_nothing_of_its_shadows(beside: Beside) -> None:
    beside.lost()
    before, served = beside.told(), beside.stored()
    assert all(len(keys) == 300 + LOST for keys in served.values())
    beside.headrace("resnapshot", "abort", beside.unfinished())
    assert beside.shadows() == {}
    assert (beside.told(), beside.stored()) == (before, served)
    beside.mirror.database.run("UPDATE things SET v = 'written since' WHERE id = 7")
    until(lambda: all(rows["7"]["v"] == "written since" for rows in beside.mirror.stored("things").values()))
    beside.mended()


def test_an_abort_while_a_sink_rests_leaves_nothing_of_the_shadows(beside: Beside) -> None:
    beside.lost()
    before, served = beside.told(), beside.stored()
    beside.mirror.pause("cache")
    run = runs.start(beside.mirror.context, NAME, tables=[TableId("public", "things")])
    registry = Registry(beside.mirror.context.registry)

    def waits() -> bool:
        reason = run_of(registry, run.id).reason
        return reason.count("RESNAPSHOT_SWEEP_LARGE") == 2 and f"sink {NAME}cache is paused" in reason

    until(waits, why=lambda: run_of(registry, run.id).reason)
    assert {"search", "lake"} <= beside.shadows().keys()
    beside.headrace("resnapshot", "abort", run.id)
    until(lambda: run_of(registry, run.id).phase == "aborted")
    assert beside.shadows() == {}
    assert beside.stored() == served
    beside.mirror.resume("cache")
    until(lambda: beside.told() == before, why=beside.told)
    beside.mended()


def test_what_a_store_that_was_away_at_an_abort_keeps_is_removed_by_the_next_run(beside: Beside) -> None:
    beside.lost()
    run = beside.unfinished()
    with redis_locked(beside.mirror.stack):
        beside.headrace("resnapshot", "abort", run)
    reason = json.loads(beside.headrace("resnapshot", "show", run, "--json"))["reason"]
    assert reason.startswith(f"the store of {NAME}cache did not answer")
    assert beside.shadows().keys() == {"cache"}
    beside.mended()


def test_an_unfinished_run_whose_table_another_has_read_leaves_no_shadow(beside: Beside) -> None:
    beside.lost()
    run = beside.unfinished()
    beside.headrace("resnapshot", NAME, "public.things", "--sweep-many")
    ended = json.loads(beside.headrace("resnapshot", "show", run, "--json"))
    assert ended["state"] == "aborted"
    assert "has read the same tables anew" in ended["reason"]
    beside.assert_equal()


def test_a_recovery_leaves_no_shadow_of_the_life_before(beside: Beside) -> None:
    beside.lost()
    run = beside.unfinished()
    beside.headrace("recover", NAME)
    assert json.loads(beside.headrace("resnapshot", "show", run, "--json"))["state"] == "aborted"
    beside.assert_equal()


@pytest.mark.parametrize(
    "statement",
    [
        "ADD COLUMN more int DEFAULT 5",
        "ALTER COLUMN n TYPE bigint",
        "DROP COLUMN gone",
        "ALTER COLUMN n TYPE text",
    ],
)
def test_columns_that_change_while_shadows_wait_are_in_what_is_served_then(
    beside: Beside, statement: str
) -> None:
    beside.lost()
    beside.unfinished()
    beside.mirror.database.run(
        f"ALTER TABLE things {statement}", "UPDATE things SET n = '2147483647' WHERE id = 3"
    )
    beside.followed()
    beside.assert_equal()


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_run_that_dies_in_the_middle_of_a_switch_goes_on(
    beside: Beside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    beside.mirror.settle()
    beside.condemned()
    context, log = beside.mirror.context, tmp_path / "log"
    log.touch()
    stop_engine(context.run)
    with monkeypatch.context() as armed:
        armed.setenv("HEADRACE_FAILPOINTS", f"switch.after/{kind}=kill")
        armed.setenv("HEADRACE_FAILPOINTS_LOG", str(log))
        ensure_engine(context)
    run = runs.start(context, NAME)
    until(lambda: log.read_text().endswith("\n"), why=lambda: run_of(Registry(context.registry), run.id))
    stop_engine(context.run)
    ensure_engine(context)
    runs.wait(context, run.id, patient=True)  # the sinks are stopped until the engine has begun
    beside.assert_equal()


def test_a_table_that_is_dropped_while_its_shadows_wait_leaves_nothing_of_them(beside: Beside) -> None:
    beside.mirror.database.run(
        "CREATE TABLE brief (id int PRIMARY KEY)", "INSERT INTO brief SELECT generate_series(1, 500)"
    )
    beside.headrace("source", "tables", "add", NAME, "public.brief")
    beside.mirror.settle()
    beside.mirror.database.run(
        f"ALTER PUBLICATION headrace_{NAME} DROP TABLE brief",
        "DELETE FROM brief WHERE id > 100",
        f"ALTER PUBLICATION headrace_{NAME} ADD TABLE brief",
    )
    beside.condemn("public.brief")
    beside.mirror.pause("cache")
    both = [TableId("public", name) for name in ("brief", "others")]
    run = runs.start(beside.mirror.context, NAME, tables=both)
    registry = Registry(beside.mirror.context.registry)
    until(
        lambda: run_of(registry, run.id).reason.count("RESNAPSHOT_SWEEP_LARGE") == 2,
        why=lambda: run_of(registry, run.id).reason,
    )
    assert {"search", "lake"} <= beside.shadows().keys()
    beside.mirror.database.run("DROP TABLE brief")
    beside.mirror.resume("cache")
    until(lambda: run_of(registry, run.id).plan["left_out"].keys() == {"public.brief"})
    until(lambda: beside.shadows() == {}, why=beside.shadows)
    until(lambda: run_of(registry, run.id).phase == "completed")
    beside.headrace("source", "tables", "remove", NAME, "public.brief", "--purge")
    beside.assert_equal()


def test_a_target_that_is_filled_after_kafka_dropped_what_a_run_has_read_is_not_served(
    beside: Beside,
) -> None:
    """The sink rests until all of it is gone: what is filled then is empty, and nothing in it is older."""
    beside.mirror.settle()
    beside.condemned()
    beside.mirror.pause("cache")
    run = runs.start(beside.mirror.context, NAME, tables=[TableId("public", "things")])
    registry = Registry(beside.mirror.context.registry)
    until(
        lambda: len(run_of(registry, run.id).counts.get("swept", {})) == 2,
        why=lambda: run_of(registry, run.id).reason,
    )
    dropped(beside.mirror.context.kafka_bootstrap, f"{NAME}.public.things")
    before = beside.mirror.stored("things")[f"{NAME}cache"]
    beside.mirror.resume("cache")
    until(lambda: run_of(registry, run.id).phase == "failed", why=lambda: run_of(registry, run.id).reason)
    error = run_of(registry, run.id).error
    assert error is not None
    assert error["code"] == "RESNAPSHOT_INCOMPLETE"
    assert beside.mirror.stored("things")[f"{NAME}cache"] == before
    assert not beside.mirror.in_sync
    beside.headrace(*steps(error["hint"])[1])
    beside.headrace("resnapshot", "wait", run.id)
    beside.assert_equal()


def test_a_sink_that_is_removed_takes_its_shadows_along(beside: Beside) -> None:
    """The last of this file: the stores are gone after it."""
    beside.lost()
    run = beside.unfinished()
    for short, name in zip(KINDS, SINKS, strict=True):
        sink.remove(beside.mirror.context, name, purge=True)
        left = beside.shadows()
        assert short not in left
        assert not any(found.startswith(f"{name}.") for found in left.get("engine", ()))
    assert beside.shadows() == {}
    # Nothing is left that it would have to finish.
    beside.headrace("resnapshot", "resume", run)
