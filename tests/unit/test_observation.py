"""What comes while a look is under way is looked at with its source, or not at all."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.control import observation
from headrace.control.adding import asked_sink
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry
from headrace.observe import pidfile
from spark_jobs.progress import replace_json
from tests.support.entries import source_entry
from tests.support.obeying import GOODS


def test_a_sink_of_a_source_that_came_during_a_look_is_looked_at_with_it(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(context.registry)
    with registry.begin() as session:
        session.add(source_entry("shop", [GOODS]))
    looked: list[str] = []

    def looks(_: Context, __: Registry, ___: Kafka, entry: Any) -> Any:
        looked.append(entry.name)
        if looked == ["shop"]:
            with registry.begin() as session:
                session.add(source_entry("depot", []))
                session.flush()
                session.add(asked_sink("cache", "memory", "depot", {}, "lenient"))
        return type("Seen", (), {"entry": entry})()

    monkeypatch.setattr(observation, "_source", looks)
    monkeypatch.setattr(observation, "_sink", lambda *told: told[2:])
    found: Any = observation.observe(context, Kafka("nowhere:1"))
    sources, ((entry, source),) = found
    assert [one.entry.name for one in sources] == ["depot", "shop"]
    assert (entry.name, source.entry.name) == ("cache", "depot")


@pytest.mark.parametrize(("later_s", "state"), [(-1, "starting"), (3_600, "ready")])
def test_a_clock_that_was_set_back_since_the_engine_started_makes_it_none_that_starts(
    context: Context, later_s: int, state: str
) -> None:
    now = time.time()
    replace_json(
        context.progress / "engine.json", {"state": "ready", "pid": 0, "updated_ms": (now - 9) * 1000}
    )
    pidfile.write(context.run / "engine.pid")
    os.utime(context.run / "engine.pid", (now + later_s, now + later_s))
    assert (observation._engine(context) == "starting") is (state == "starting")


@pytest.mark.parametrize(("life", "beyond"), [("@before", False), ("@x", True), ("", True)])
def test_offsets_of_a_topic_that_was_made_anew_are_none_of_the_one_that_is_there(
    context: Context, life: str, beyond: bool
) -> None:
    """A sink that rests while a table is taken out and in again has settled nothing that Kafka has lost."""
    topic, ends = "shop.public.goods", {("shop.public.goods", 0): (0, 10)}
    told = {"state": "paused", "updated_ms": 1, "offsets": {topic: {"0": 1000}}, "tables": {}}
    replace_json(context.progress / "cache.json", told | {"lives": {topic: f"{topic}{life}"}})
    source: Any = SimpleNamespace(entry=source_entry("shop", [GOODS]), ends=ends, loaded=False)
    kafka: Any = SimpleNamespace(ends=lambda _: ends)
    entry = asked_sink("cache", "memory", "shop", {}, "lenient")
    seen = observation._sink(context, kafka, entry, source)
    assert bool(seen.beyond) is beyond
