"""Trouble of one table stays that table's: its records are left out of what is settled, and come again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.config.pipeline import PipelineSpec, Swept, TableSpec
from headrace.model.change import Change, Origin
from headrace.model.errors import SinkError, SinkUnavailable, SourceError
from headrace.model.outcome import Outcome, Rejected
from headrace.model.position import Position
from headrace.model.schema import TableSchema
from sinks.memory import MemorySink
from spark_jobs.apply import apply_records
from spark_jobs.checkpoint import mend, put_aside
from spark_jobs.held import Holds
from spark_jobs.offsets import planned
from spark_jobs.report import Report
from spark_jobs.rewind import sweep_again
from spark_jobs.tables import Tables
from spark_jobs.troubles import Troubles
from tests.support.small_table import NOTHING_CARRIED, SCHEMA, TABLE, change, sink

OTHER = TableSchema(type(TABLE)("public", "other"), SCHEMA.columns, SCHEMA.key)
TABLES = Tables({TABLE: SCHEMA, OTHER.table: OTHER}, {"t": (TABLE, 1), "o": (OTHER.table, 1)})


def of_other(offset: int, key: int) -> Change:
    one = change(offset, key)
    return Change(OTHER.table, one.key, one.op, one.row, one.absent, one.position, Origin("o", 0, offset))


class Refusing(MemorySink):
    """A store of which one table's target refuses."""

    error: SinkError | None = SinkError("gone", code="GONE", hint="headrace resnapshot SOURCE t", table=TABLE)

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        if schema.table == TABLE and self.error is not None:
            raise self.error
        return super().apply(schema, changes)


def refusing() -> Refusing:
    made = Refusing("m", MemorySink.Config(store=uuid.uuid4().hex))
    for schema in (SCHEMA, OTHER):
        made.prepare(schema)
    return made


def applied(target: MemorySink, holds: Holds, rows_at_once: int | None = None) -> Report:
    stream = [one for at in range(0, 10, 2) for one in (change(at, at), of_other(at + 1, at))]
    return apply_records(stream, target, TABLES, NOTHING_CARRIED, holds, rows_at_once=rows_at_once)


@pytest.mark.parametrize("rows_at_once", [None, 1])
def test_what_one_table_s_target_refuses_stops_no_other(rows_at_once: int | None) -> None:
    target, holds = refusing(), Holds()
    report = applied(target, holds, rows_at_once)
    assert report.error is None
    assert report.troubles.keys() == {str(TABLE)}
    assert report.troubles[str(TABLE)]["code"] == "GONE"
    assert len(list(target.scan(OTHER))) == 5
    again = Report.load(report.dump())
    before = Holds({str(TABLE): {"7": [3]}})
    again.reject(str(TABLE), change(9, 9), 9, Rejected("X", "x"))
    again.spent = ["t-0@4.json", "o-0@4.json", "t-x-0@1.json"]
    again.leave_out({str(TABLE): "t"}, before)
    assert again.tables.keys() == {str(OTHER.table)}
    assert again.rejects == []
    assert again.holds.held == {str(TABLE): {"7": [3]}}
    assert again.spent == ["o-0@4.json", "t-x-0@1.json"]


def test_trouble_of_the_store_is_the_batch_s() -> None:
    target = refusing()
    target.error = SinkUnavailable("down", code="DOWN")
    assert applied(target, Holds()).error is not None


def spec(tmp_path: Path, swept: dict[str, Swept] | None = None) -> PipelineSpec:
    return PipelineSpec(
        sink="cache",
        kind="memory",
        settings={},
        source="shop",
        kafka_bootstrap="127.0.0.1:1",
        placeholder="p",
        tables=(TableSpec(topic="t", epoch=1, table=SCHEMA.as_dict()),),
        checkpoint=tmp_path / "checkpoint",
        dead_letters=tmp_path / "dead",
        owner=tmp_path / "owner.json",
        home="here",
        swept=swept or {},
    )


ERROR = {"code": "GONE", "message": "gone", "hint": "headrace resnapshot SOURCE public.t", "retry": "later"}


def test_trouble_outlives_the_engine_and_goes_when_the_target_takes_changes(tmp_path: Path) -> None:
    troubles = Troubles(spec(tmp_path))
    troubles.refused("public.t", ERROR)
    assert not troubles.due("public.t")
    told = Troubles(spec(tmp_path)).told()["public.t"]
    assert (told["state"], told["hint"]) == ("degraded", "headrace resnapshot shop public.t")
    troubles.passed("public.t")
    assert Troubles(spec(tmp_path)).told() == {}


def test_trouble_of_a_target_goes_with_it(tmp_path: Path) -> None:
    before = spec(tmp_path)
    Troubles(before).refused("public.t", ERROR)
    tables = tuple(table.model_copy(update={"target": table.target + 1}) for table in before.tables)
    assert Troubles(before.model_copy(update={"tables": tables})).told() == {}


def test_a_target_that_is_closed_takes_nothing_until_another_has_its_place(tmp_path: Path) -> None:
    before = spec(tmp_path)
    Troubles(before).close("public.t", ERROR)
    troubles = Troubles(before)
    troubles.hole("public.t", SourceError("lost", code="KAFKA_DATA_LOST"), {0: 70})
    assert put_aside(before.checkpoint) is None
    assert troubles.is_shut("public.t")
    assert not troubles.due("public.t")
    told = troubles.told()["public.t"]
    assert (told["code"], told["state"]) == ("GONE", "resync_required")
    assert told["hint"] == "headrace resnapshot shop public.t"
    tables = tuple(table.model_copy(update={"target": table.target + 1}) for table in before.tables)
    after = Troubles(before.model_copy(update={"tables": tables}))
    assert not after.is_shut("public.t")
    assert after.told() == {}


def test_a_hole_stays_until_a_run_that_began_behind_it_is_complete(tmp_path: Path) -> None:
    troubles = Troubles(spec(tmp_path))
    troubles.hole("public.t", SourceError("lost", code="KAFKA_DATA_LOST"), {0: 70})
    troubles.passed("public.t")
    assert troubles.due("public.t")
    early, late = Swept(marks=(69,), ends=(90,)), Swept(marks=(70,), ends=(90,))
    assert Troubles(spec(tmp_path, {"t": early})).told()["public.t"]["state"] == "resync_required"
    assert Troubles(spec(tmp_path, {"t": late})).told() == {}


def test_a_topic_that_gives_offsets_twice_is_shut(tmp_path: Path) -> None:
    troubles = Troubles(spec(tmp_path))
    troubles.shut("public.t", SourceError("back", code="KAFKA_WENT_BACK"))
    troubles.passed("public.t")
    troubles.hole("public.t", SourceError("lost", code="KAFKA_DATA_LOST"), {0: 70})
    again = Troubles(spec(tmp_path))
    assert again.is_shut("public.t")
    assert again.told()["public.t"]["code"] == "KAFKA_WENT_BACK"


@pytest.mark.parametrize(
    ("applied_again", "left"),
    [((0, 30), {"1", "2"}), ((20, 40), {"2"}), ((30, 50), {"2"}), ((40, 60), {"1", "2"})],
)
def test_a_swept_row_stays_swept_through_a_replay(
    tmp_path: Path, applied_again: tuple[int, int], left: set[str]
) -> None:
    """A7: a run began at 20 and ended at 40; row 1 was gone by then, though no record says so."""
    target = sink()
    target.apply(SCHEMA, [change(5, 1), change(25, 2)])
    done = spec(tmp_path, {"t": Swept(marks=(20,), ends=(40,))})
    assert sweep_again(done, target, Report(), {("t", 0): applied_again}) == {}
    assert {stored.key for stored in target.scan(SCHEMA)} == left


def test_a_topic_that_ends_before_what_was_settled_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "offsets"
    folder.mkdir()
    for number, end in enumerate((100, 60)):
        (folder / str(number)).write_text("\n".join(["v1", "{}", json.dumps({"t": {"0": end}})]))
    span = planned(tmp_path, 1)
    assert span.back == {("t", 0): (99, 59)}
    assert span.records == 0
    assert span.ranges == {}


def test_files_that_a_power_cut_left_empty_are_planned_once_more(tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
        for number in range(3):
            (tmp_path / name / str(number)).write_text("v1\n{}")
            (tmp_path / name / f".{number}.crc").write_text("c")
    (tmp_path / "offsets" / "2").write_bytes(b"")
    mend(tmp_path)
    for name in ("offsets", "commits"):
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == [".0.crc", ".1.crc", "0", "1"]
    (tmp_path / "commits" / "1").write_bytes(b"\0\0\0")
    mend(tmp_path)
    assert (tmp_path / "offsets" / "1").exists()
    assert not (tmp_path / "commits" / "1").exists()


def test_a_position_of_a_mark_leaves_other_partitions_alone() -> None:
    assert Position(1, 20, 1).floor > Position(1, 19, 0).version
