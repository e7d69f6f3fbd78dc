"""Which run reads the large tables of a new life, and how the recovery goes on after what ends the wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.control.context import Context
from headrace.control.first_load import leave_to_run
from headrace.control.recovery import large
from headrace.control.recovery.job import Job
from headrace.control.registry import ResnapshotEntry
from headrace.control.runs.repository import Phase, active, all_of, change, end, topics_of
from headrace.control.verdicts import LEFT_TO_RUN, over
from headrace.model.errors import SourceError
from tests.support.recovering import TOPIC, begun
from tests.support.small_table import TABLE

AGAIN = "headrace recover shop"
Ends = Callable[[Job, str], None]


class Sized:
    """A database that estimates rows."""

    def estimate_rows(self, tables: list[Any]) -> dict[Any, int]:
        return dict.fromkeys(tables, 7)


@pytest.fixture
def job(context: Context, monkeypatch: pytest.MonkeyPatch) -> Job:
    made = begun(context)
    leave_to_run(made.registry, made.source, [TABLE])
    monkeypatch.setattr(large, "source_of", lambda *_: Sized())
    monkeypatch.setattr(large, "hand_over", lambda *_: None)
    return made


def waits(monkeypatch: pytest.MonkeyPatch, does: Callable[[str], ResnapshotEntry]) -> None:
    monkeypatch.setattr(large, "wait", lambda _, run, see: does(run))


def nothing() -> None:
    """Say that the database is the one that it was."""


def test_one_run_reads_what_is_left_sweeps_no_sink_and_is_waited_for_again(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rests(run: str) -> ResnapshotEntry:
        raise SourceError(
            "Run is paused.", code="RESNAPSHOT_PAUSED", hint=f"headrace resnapshot resume {run}"
        )

    waits(monkeypatch, rests)
    with pytest.raises(SourceError):
        large.read_large(job, nothing)
    with pytest.raises(SourceError) as told:
        large.read_large(job, nothing)
    (run,) = active(job.registry, "shop")
    assert (topics_of(run), run.plan["sinks"], run.plan["estimate"]) == ({TOPIC}, [], 7)
    assert told.value.hint == f"headrace resnapshot resume {run.id} && {AGAIN}"

    def reads(name: str) -> ResnapshotEntry:
        assert name == run.id
        over(job.registry, "shop", TOPIC, LEFT_TO_RUN)
        return run

    waits(monkeypatch, reads)
    large.read_large(job, nothing)
    assert len(all_of(job.registry, "shop")) == 1


@pytest.mark.parametrize(
    ("code", "hint", "then"),
    [
        ("RESNAPSHOT_ABORTED", "headrace resnapshot shop public.t", AGAIN),
        (
            "SOURCE_SELECT_RIGHT",
            "GRANT x; -- then: headrace resnapshot resume r",
            f"GRANT x; -- then: {AGAIN}",
        ),
        (
            "SOURCE_TABLE_MISSING",
            "headrace source tables remove shop public.t",
            f"headrace source tables remove shop public.t -- then: {AGAIN}",
        ),
        ("SOURCE_SELECT_RIGHT", "", AGAIN),
        ("SOURCE_SELECT_RIGHT", "headrace resnapshot resume {run}", AGAIN),
        ("RESNAPSHOT_PARTITIONS", AGAIN, AGAIN),
        ("RESNAPSHOT_ROWS_BUSY", "ALTER TABLE t; -- then: headrace resnapshot resume r", AGAIN),
    ],
)
def test_a_run_that_ended_is_begun_again_by_the_command_that_is_told(
    job: Job, monkeypatch: pytest.MonkeyPatch, code: str, hint: str, then: str
) -> None:
    def ends(run: str) -> ResnapshotEntry:
        end(job.registry, run, Phase.ABORTED if code == "RESNAPSHOT_ABORTED" else Phase.FAILED)
        raise SourceError("It ended.", code=code, hint=hint.format(run=run))

    waits(monkeypatch, ends)
    with pytest.raises(SourceError) as told:
        large.read_large(job, nothing)
    assert told.value.hint == then
    # What a run cannot read is left to the snapshot, with another life.
    refused = code == "RESNAPSHOT_ROWS_BUSY"
    assert job.run.phase == ("beginning" if refused else "reading")
    assert job.run.plan.get("by_snapshot") == ([TOPIC] if refused else None)


def test_what_is_wrong_with_the_database_ends_the_wait(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "_LOOK_S", -1.0)
    monkeypatch.setattr(large._Look, "_refuse_failed", lambda _: None)

    def another() -> None:
        raise SourceError("It went back.", code="RECOVER_AGAIN", hint=AGAIN)

    def sees(run: str, see: Callable[[ResnapshotEntry], None]) -> ResnapshotEntry:
        see(change(job.registry, run, phase=Phase.READING))
        raise AssertionError

    monkeypatch.setattr(large, "wait", lambda _, run, see: sees(run, see))
    with pytest.raises(SourceError) as told:
        large.read_large(job, another)
    assert (told.value.code, told.value.hint) == ("RECOVER_AGAIN", AGAIN)
