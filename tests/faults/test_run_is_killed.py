"""The process of a run is killed after each of its steps while people write: the run goes on by itself.

Nobody starts anything anew: the points are told by a file, and each that has fired is taken out of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.config.pipeline import load_pipeline
from headrace.control import lag
from headrace.control.context import Context
from headrace.control.recovery.left_out import LeftOut, tell
from headrace.control.registry import Registry, ResnapshotEntry
from headrace.control.runner import ensure_engine, stop_engine
from headrace.control.runs import start as runs
from headrace.control.runs.repository import UNSWEPT, run_of
from headrace.control.verdicts import standing
from headrace.model.schema import TableId
from tests.support.leftovers import left_by_shadows
from tests.support.mirror import KINDS, Mirror, mirrored
from tests.support.remedy import carry_out, refused
from tests.support.stack import RunningStack
from tests.support.waiting import until
from tests.support.writing import writing

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(600)]

NAME = "felled"
THINGS = TableId("public", "things")
SINKS = [f"{NAME}{short}" for short in KINDS]
ROWS, LOST, MANY = 300, 5, 400


def at_each(point: str) -> str:
    """Return the words by which a process dies at a point for one kind of sink after the other."""
    return ",".join(f"{point}/{kind}=kill" for kind in KINDS.values())


PLAIN = (
    *(f"run.{step}=kill" for step in ("noted", "requested", "asked", "read", "ends")),
    # A sink is asked what would go, then what is there of what the database has, and to remove it at last.
    *(f"desk.{step}=kill@3" for step in ("left", "answered")),
    *(at_each(f"run.{step}") for step in ("swept", "healed", "counted")),
    *(f"run.{step}=kill" for step in ("remembered", "ended", "tidied")),
)
SHADOWS = [at_each(f"run.{step}") for step in ("begun_shadow", "withheld", "withdrawn", "moved", "rewritten")]


@pytest.fixture(scope="module")
def points(context: Context, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Have each process that the guardian starts look into a file for the points at which it is to die."""
    path = tmp_path_factory.mktemp("killed") / "points"
    stop_engine(context.run)
    with pytest.MonkeyPatch.context() as armed:
        armed.setenv("HEADRACE_FAILPOINTS", f"@{path}")
        ensure_engine(context)
    yield path
    stop_engine(context.run)
    ensure_engine(context)


@pytest.fixture(scope="module")
def mirror(stack: RunningStack, points: Path) -> Iterator[Mirror]:
    with mirrored(
        stack,
        NAME,
        "CREATE TABLE things (id int PRIMARY KEY, v text, n int)",
        f"INSERT INTO things SELECT i, 'v' || i, i FROM generate_series(1, {ROWS}) i",
        settings={"snapshot_chunk_rows": 16},
    ) as made:
        made.settle()
        yield made


def lose(mirror: Mirror, rows: int = LOST) -> None:
    """Have the stores hold rows that the database does not, of which nobody was told."""
    mirror.settle()
    mirror.database.run(f"INSERT INTO things SELECT 50000 + i, 'goes' FROM generate_series(1, {rows}) i")
    mirror.settle()
    mirror.database.run(
        f"ALTER PUBLICATION headrace_{NAME} DROP TABLE things",
        "DELETE FROM things WHERE id > 50000",
        f"ALTER PUBLICATION headrace_{NAME} ADD TABLE things",
    )


def condemn(mirror: Mirror) -> None:
    """Have status say of each target that it has to be made anew: the next run fills shadows."""
    registry = Registry(mirror.context.registry)
    for sink in SINKS:
        left = LeftOut(sink, str(THINGS), "TARGET_BROKEN", "it refuses", f"headrace resnapshot {NAME}")
        tell(registry, registry.source(NAME), left)


@contextmanager
def written(mirror: Mirror) -> Iterator[None]:
    """Have somebody write all the while: rows are changed, come, are replaced and go."""

    def write(number: int) -> None:
        mirror.database.run(
            f"UPDATE things SET v = 'w{number}' WHERE id = {1 + number % ROWS}",
            f"INSERT INTO things VALUES ({10_000 + number % 50}, 'new', {number})"
            " ON CONFLICT (id) DO UPDATE SET n = excluded.n",
            f"DELETE FROM things WHERE id = {10_000 + (number + 25) % 50}",
        )

    with writing(write, every_s=0.05):
        yield


def now(mirror: Mirror, run: ResnapshotEntry) -> ResnapshotEntry:
    return run_of(Registry(mirror.context.registry), run.id)


def left(mirror: Mirror, run: ResnapshotEntry) -> dict[str, object]:
    """Return what a run has left behind, by the place that has it."""
    context, plan = mirror.context, now(mirror, run).plan
    ((topic, marks),) = plan["marks"].items()
    specs = [load_pipeline(context.pipelines / f"{sink}.json") for sink in SINKS]
    told = {spec.sink: [*spec.swept[topic].marks] for spec in specs if topic in spec.swept}
    found: dict[str, object] = {
        "markers": [path.name for path in (context.run / "runs").glob("*")],
        "requests": [path.name for path in context.requests.rglob("*") if path.is_file()],
        "shadows": left_by_shadows(mirror),
        "orders": mirror.database.run(f"TABLE headrace.{NAME}_signal"),
        "verdicts": [(it.sink, it.code) for it in standing(Registry(context.registry), NAME)],
        "withheld": [spec.sink for spec in specs if spec.withheld or spec.paused],
        "unfinished": plan.get("switching") or plan.get("litter"),
        "reason": now(mirror, run).reason,
        "not remembered": [sink for sink in SINKS if told.get(sink) != marks],
    }
    return {where: what for where, what in found.items() if what}


def assert_whole(mirror: Mirror, run: ResnapshotEntry, points: Path, removed: int = LOST) -> None:
    """Fail unless a run has done all that it was asked for, has counted that, and has left nothing."""
    until(lambda: points.read_text() == "", why=points.read_text)
    mirror.settle()
    wanted = {str(row["id"]): row for (row,) in mirror.database.run("SELECT to_jsonb(t) FROM things t")}
    for sink, rows in mirror.stored("things").items():
        assert rows == wanted, sink
    until(lambda: left(mirror, run) == {}, why=lambda: left(mirror, run))
    done = now(mirror, run)
    assert done.phase == "completed"
    assert done.counts["swept"] == {sink: {str(THINGS): removed} for sink in SINKS}
    (topic,) = done.plan["topics"]
    arrived = sum(done.plan["ends"][topic]) - sum(done.plan["marks"][topic])
    assert done.counts["written"] == dict.fromkeys(SINKS, arrived)


@pytest.mark.parametrize("armed", PLAIN)
def test_a_run_is_killed(mirror: Mirror, points: Path, armed: str) -> None:
    lose(mirror)
    points.write_text(armed)
    with written(mirror):
        run = runs.start(mirror.context, NAME, tables=[THINGS])
        runs.wait(mirror.context, run.id, patient=True)
    assert_whole(mirror, run, points)


@pytest.mark.parametrize("armed", SHADOWS)
def test_a_run_that_makes_shadows_is_killed(mirror: Mirror, points: Path, armed: str) -> None:
    lose(mirror)
    condemn(mirror)
    points.write_text(armed)
    with written(mirror):
        run = runs.start(mirror.context, NAME, tables=[THINGS])
        runs.wait(mirror.context, run.id, patient=True)
    assert_whole(mirror, run, points)


def test_a_run_is_killed_as_it_finds_that_many_rows_would_go(mirror: Mirror, points: Path) -> None:
    lose(mirror, MANY)
    points.write_text(at_each("run.refused"))
    with written(mirror):
        run = runs.start(mirror.context, NAME, tables=[THINGS])
        told = refused(mirror.stack.home.root, "resnapshot", "wait", run.id)
        assert told["code"] == "RESNAPSHOT_SWEEP_LARGE"
        assert now(mirror, run).phase == "unfinished"
        carry_out(told["hint"], mirror.stack.home.root, mirror.database.run)
    assert_whole(mirror, run, points, MANY)


def test_a_run_is_killed_as_it_has_the_connector_rest(mirror: Mirror, points: Path) -> None:
    lose(mirror)
    points.write_text("run.unasked=kill")
    with written(mirror):
        run = runs.start(mirror.context, NAME, tables=[THINGS], rows_per_second=50)
        until(lambda: now(mirror, run).plan.get("asked"), why=lambda: now(mirror, run).reason)
        runs.pause(mirror.context, run.id)
        until(lambda: points.read_text() == "", why=lambda: now(mirror, run).phase)
        carry_out(f"headrace resnapshot resume {run.id}", mirror.stack.home.root, mirror.database.run)
    assert_whole(mirror, run, points)


def test_a_run_is_killed_as_it_is_aborted(mirror: Mirror, points: Path) -> None:
    lose(mirror)
    points.write_text("run.unswept=kill")
    mirror.pause("cache")
    with written(mirror):
        run = runs.start(mirror.context, NAME, tables=[THINGS])
        until(lambda: now(mirror, run).counts.get("swept", {}).keys() == {SINKS[0], SINKS[2]})
        runs.abort(mirror.context, run.id)
        until(lambda: now(mirror, run).phase == "aborted", why=lambda: now(mirror, run).reason)
        mirror.resume("cache")
    assert points.read_text() == ""
    registry = Registry(mirror.context.registry)
    assert (SINKS[1], UNSWEPT) in {(it.sink, it.code) for it in standing(registry, NAME)}
    (remedy,) = {one.remedy for one in lag.measure(mirror.context).tables if one.sink == SINKS[1]}
    carry_out(remedy, mirror.stack.home.root, mirror.database.run)
    mirror.settle()
    wanted = {str(row["id"]): row for (row,) in mirror.database.run("SELECT to_jsonb(t) FROM things t")}
    assert mirror.stored("things") == dict.fromkeys(SINKS, wanted)
    assert standing(registry, NAME) == []
