"""Which sinks rest, and what has them apply again."""

from __future__ import annotations

import time

import pytest

from headrace.control.context import Context
from headrace.control.pipelines import spec_path
from headrace.control.rest import refuse_at_rest, resting
from headrace.model.errors import SinkError
from headrace.observe import pidfile
from spark_jobs.progress import Progress, replace_json
from tests.unit.test_engine_files import spec

TAKE_OVER = "headrace sink resume SINK --take-over"
OTHERS = {
    "code": "SINK_FENCED",
    "message": "It is another's.",
    "hint": "headrace sink resume SINK --take-over",
}


@pytest.fixture
def told(context: Context) -> Progress:
    """Return what the engine tells of a sink that has a pipeline file; no engine runs."""
    pipeline = spec(context.run)
    replace_json(spec_path(context, "cache"), pipeline.model_dump(mode="json"))
    return Progress(context.progress / "cache.json", pipeline)


def test_a_sink_that_failed_is_refused_with_what_mends_it(context: Context, told: Progress) -> None:
    told.state("failed", OTHERS)
    with pytest.raises(SinkError) as refused:
        refuse_at_rest(context, "cache", again="headrace recover shop")
    assert refused.value.code == "SINK_AT_REST"
    assert refused.value.hint == "headrace sink resume cache --take-over && headrace recover shop"
    assert OTHERS["message"] in refused.value.message


@pytest.mark.parametrize(
    ("guarded", "ago_s", "rests"), [(True, 1, ""), (True, 60, "stopped"), (False, 1, "stopped")]
)
def test_a_driver_that_ended_a_moment_ago_is_followed_by_another(
    context: Context, told: Progress, guarded: bool, ago_s: int, rests: str
) -> None:
    told.state("stopped")
    ended_ms = int((time.time() - ago_s) * 1000)
    replace_json(context.progress / "engine.json", {"state": "stopped", "pid": 0, "updated_ms": ended_ms})
    if guarded:
        pidfile.write(context.run / "engine.pid")
    assert resting(context, "cache") == rests
