"""What a process keeps of its pipelines does not grow with claims, runs and changes of columns."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from headrace.config.pipeline import PipelineSpec, Swept, TableSpec
from sinks.contract.story import ORDERS
from sinks.memory import MemorySink
from spark_jobs import apply, per_pipeline
from spark_jobs.apply import sink_of
from spark_jobs.decode import decoders
from spark_jobs.held import Holds
from spark_jobs.per_pipeline import PerPipeline

TOPIC = "shop.public.orders"


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    return PipelineSpec(
        sink="cache",
        kind="memory",
        settings={"store": str(tmp_path)},
        source="shop",
        kafka_bootstrap="127.0.0.1:1",
        placeholder="p",
        tables=(TableSpec(topic=TOPIC, epoch=1, table=ORDERS.as_dict()),),
        checkpoint=tmp_path / "checkpoint",
        dead_letters=tmp_path / "dead",
        owner=tmp_path / "owner.json",
        home="here",
    )


def claimed(spec: PipelineSpec, number: int) -> str:
    swept = {TOPIC: Swept(marks=(number,), ends=(number,))}
    return spec.model_copy(update={"holder": f"h{number}", "swept": swept}).model_dump_json()


def test_a_hundred_claims_and_runs_open_the_store_once(
    spec: PipelineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def build(kind: str, name: str, settings: dict[str, str]) -> MemorySink:
        opened.append(name)
        return MemorySink(name, MemorySink.Config(**settings))

    monkeypatch.setattr(apply, "build", build)
    apply.forget_sinks()
    for number in range(100):
        sink_of(spec.model_dump_json())
        sink_of(claimed(spec, number))
    assert opened == ["cache"]


def test_another_definition_takes_the_place_of_the_former(spec: PipelineSpec) -> None:
    former = weakref.ref(sink_of(spec.model_dump_json())[0])
    for renewed in (1, 2):
        sink_of(spec.model_copy(update={"renewed_ms": renewed}).model_dump_json())
    gc.collect()
    assert former() is None


def test_what_was_made_of_former_texts_is_let_go(spec: PipelineSpec) -> None:
    kept = [weakref.ref(decoders(claimed(spec, number))[TOPIC]) for number in range(20)]
    gc.collect()
    assert sum(made() is not None for made in kept) == 2


def test_one_pipeline_lets_go_of_nothing_of_another(spec: PipelineSpec, tmp_path: Path) -> None:
    made: list[str] = []
    known = PerPipeline(lambda told: made.append(told.sink), kept=1)
    texts = [
        spec.model_copy(update={"sink": name, "checkpoint": tmp_path / name}).model_dump_json()
        for name in ("a", "b", "c")
    ]
    for _ in range(3):
        for text in texts:
            known(text)
    assert made == ["a", "b", "c"]


def test_what_was_made_of_a_sink_that_is_removed_is_let_go(
    spec: PipelineSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(per_pipeline, "_TIDY_S", 0.0)
    here, gone = (
        spec.model_copy(update={"sink": name, "checkpoint": tmp_path / name}) for name in ("here", "gone")
    )
    made: list[str] = []

    def make(told: PipelineSpec) -> Holds:
        made.append(told.sink)
        return Holds()

    known = PerPipeline(make)
    for told in (here, gone):
        told.checkpoint.mkdir()
    left = weakref.ref(known(gone.model_dump_json()))
    known(here.model_dump_json())
    gone.checkpoint.rmdir()
    known(here.model_dump_json())
    gc.collect()
    assert left() is None
    assert made == ["gone", "here"]


def test_the_store_of_a_sink_that_is_removed_is_let_go_while_others_texts_stay(
    spec: PipelineSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, gone = (
        spec.model_copy(update={"sink": name, "checkpoint": tmp_path / name, "settings": {"store": name}})
        for name in ("here", "gone")
    )
    for told in (here, gone):
        told.checkpoint.mkdir()
    sink_of(here.model_dump_json())
    store = weakref.ref(sink_of(gone.model_dump_json())[0])
    gone.checkpoint.rmdir()
    monkeypatch.setattr(per_pipeline, "_TIDY_S", 0.0)
    sink_of(here.model_dump_json())
    gc.collect()
    assert store() is None
