"""The engine's small files: offsets of a batch, progress for the outside, words for an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.config.pipeline import PipelineSpec, TableSpec, load_pipeline, write_private
from headrace.model.errors import SinkError
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from spark_jobs.explain import explain
from spark_jobs.held import Holds
from spark_jobs.offsets import planned
from spark_jobs.progress import Progress
from spark_jobs.report import Report

SCHEMA = TableSchema(TableId("public", "t"), (Column("id", LogicalType.INT64),), ("id",))


def spec(tmp_path: Path) -> PipelineSpec:
    return PipelineSpec(
        sink="cache",
        kind="memory",
        settings={},
        source="shop",
        kafka_bootstrap="127.0.0.1:1",
        placeholder="p",
        tables=(TableSpec(topic="shop.public.t", epoch=1, table=SCHEMA.as_dict()),),
        checkpoint=tmp_path / "checkpoint",
        dead_letters=tmp_path / "dead",
        owner=tmp_path / "owner.json",
        home="here",
    )


def log(tmp_path: Path, batch_id: int, ends: dict[str, dict[str, int]]) -> None:
    folder = tmp_path / "offsets"
    folder.mkdir(exist_ok=True)
    (folder / str(batch_id)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', json.dumps(ends)]))


def test_a_batch_ends_at_the_planned_offset_even_when_that_is_a_commit_marker(tmp_path: Path) -> None:
    log(tmp_path, 0, {"t": {"0": 10}, "u": {"0": 0}})
    log(tmp_path, 1, {"t": {"0": 12}, "u": {"0": 3}})
    assert planned(tmp_path, 0).ends == {("t", 0): 9}
    second = planned(tmp_path, 1)
    assert second.ends == {("t", 0): 11, ("u", 0): 2}
    assert second.records == 2 + 3


def test_a_pipeline_spec_survives_its_file_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    write_private(path, spec(tmp_path).model_dump_json())
    assert load_pipeline(path) == spec(tmp_path)
    assert load_pipeline(path).tables[0].schema_ == SCHEMA
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_counters_go_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    counters = {"applied": 2, "stale": 1, "rejected": 0, "last_commit_ms": 5}
    report = Report(tables={"public.t": counters})
    first = Progress(path, spec(tmp_path))
    first.batch(0, 0.1, report, {("shop.public.t", 0): 2})
    first.state("running")
    second = Progress(path, spec(tmp_path))
    second.batch(
        1, 0.1, Report(tables={"public.t": {**counters, "last_commit_ms": 3}}), {("shop.public.t", 0): 5}
    )
    second.write()
    told = json.loads(path.read_text())
    assert told["tables"]["public.t"]["applied"] == 4
    assert told["tables"]["public.t"]["last_commit_ms"] == 5
    assert told["offsets"] == {"shop.public.t": {"0": 6}}
    assert told["first_row_ms"] is not None


def test_what_was_counted_of_a_former_topic_of_a_name_is_none_of_the_one_that_has_it_now(
    tmp_path: Path,
) -> None:
    """A table was taken out and in again; else its new topic, which is empty, seems to have lost records."""
    path, here = tmp_path / "progress.json", spec(tmp_path)
    lives = [
        here.model_copy(update={"tables": (here.tables[0].model_copy(update={"topic_id": name}),)})
        for name in ("before", "now")
    ]
    counters = {"applied": 2, "stale": 1, "rejected": 0, "last_commit_ms": 5}
    first = Progress(path, lives[0])
    first.batch(0, 0.1, Report(tables={"public.t": counters}), {("shop.public.t", 0): 999})
    first.state("running")
    for life, applied, offsets in ((lives[0], 2, {"shop.public.t": {"0": 1000}}), (lives[1], 0, {})):
        Progress(path, life).state("running")
        told = json.loads(path.read_text())
        assert (told["tables"]["public.t"]["applied"], told["offsets"]) == (applied, offsets)


@pytest.mark.parametrize(
    ("drift", "stands"),
    [
        ({"missing": ["gone"]}, None),
        ({"missing": ["gone", "id"]}, {"missing": ["id"]}),
        ({"missing": ["gone"], "added": ["id"]}, {"missing": [], "added": ["id"]}),
        ({"key": ["id", "no"]}, {"missing": [], "key": ["id", "no"]}),
    ],
)
def test_a_column_that_is_mirrored_no_more_is_missed_no_more(
    tmp_path: Path, drift: dict[str, list[str]], stands: dict[str, list[str]] | None
) -> None:
    path = tmp_path / "progress.json"
    counters = {"applied": 1, "stale": 0, "rejected": 0, "last_commit_ms": 5}
    report = Report(tables={"public.t": counters}, drifts={"public.t": drift})
    first = Progress(path, spec(tmp_path))
    first.batch(0, 0.1, report, {("shop.public.t", 0): 2})
    first.state("running")
    assert json.loads(path.read_text())["tables"]["public.t"]["drift"] == drift
    Progress(path, spec(tmp_path)).state("running")
    assert json.loads(path.read_text())["tables"]["public.t"]["drift"] == stands
    # Nothing of that is true of a target that was filled beside the one of before.
    whole = spec(tmp_path)
    another = tuple(table.model_copy(update={"target": table.target + 1}) for table in whole.tables)
    Progress(path, whole.model_copy(update={"tables": another})).state("running")
    assert json.loads(path.read_text())["tables"]["public.t"]["drift"] is None


def test_rows_behind_are_counted_as_the_checkpoint_says_and_not_as_an_earlier_process_did(
    tmp_path: Path,
) -> None:
    path, holds = tmp_path / "progress.json", Holds()
    holds.hold("public.t", "1", 5)
    Progress(path, spec(tmp_path)).request(Report(holds=holds))
    later = Progress(path, spec(tmp_path))
    later.behind(Holds().counts())
    later.write()
    assert json.loads(path.read_text())["tables"]["public.t"]["behind"] == 0


def test_a_torn_progress_file_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    path.write_text('{"tables": {"pub')
    Progress(path, spec(tmp_path)).state("running")
    assert json.loads(path.read_text())["state"] == "running"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("… set the source option 'failOnDataLoss' to 'false'", "KAFKA_DATA_LOST"),
        ("UnknownTopicOrPartitionException: no such topic", "TOPIC_MISSING"),
        ("java.util.concurrent.TimeoutException: listOffsets", "KAFKA_UNREACHABLE"),
        ("java.io.IOException: No space left on device", "DISK_FULL"),
        ("something new\n at x.y", "QUERY_FAILED"),
    ],
)
def test_what_ended_a_query_has_a_code_and_a_hint(text: str, code: str) -> None:
    told = explain(RuntimeError(text))
    assert told["code"] == code
    assert told["message"]
    assert told["hint"]
    assert "\n" not in told["message"]


def test_an_error_of_ours_keeps_its_own_words() -> None:
    error = SinkError("The store refuses the password.", code="SINK_AUTH", hint="Set another.")
    assert explain(error) == error.as_dict()
