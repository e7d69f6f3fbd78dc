"""Two engines for the same sinks: a copy of the installation starts while the first one sleeps."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.control import sink as control_sink
from headrace.control.context import Context
from headrace.control.lag import measure
from headrace.control.progress import read_progress
from headrace.control.runner import engine_state, ensure_engine, stop_engine
from tests.support.shop import Shop
from tests.support.waiting import elapse, until

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(600)]

_PLACES = ("pipelines", "progress", "checkpoints", "requests", "owners", "run")


@contextmanager
def copy_of(context: Context, root: Path) -> Iterator[Context]:
    """Yield a copy of an installation as it is now, upon the same servers; stop its engine after."""
    for place in _PLACES:
        there: Path = getattr(context, place)
        if there.is_dir():
            shutil.copytree(there, root / place, ignore=shutil.ignore_patterns("*.pid", "*.lock"))
        else:
            (root / place).mkdir(parents=True)
    for path in (root / "pipelines").glob("*.json"):
        text = path.read_text()
        for place in _PLACES:
            text = text.replace(str(getattr(context, place)), str(root / place))
        path.write_text(text)
    spec = context.engine()
    moved = spec.model_copy(
        update={
            **{place: root / place for place in ("pipelines", "progress", "requests", "run")},
            "logs": root / "logs",
            "work": root / "spark",
        }
    )
    places: dict[str, Any] = {place: root / place for place in _PLACES}
    copied = replace(context, **places, engine=lambda: moved)
    try:
        yield copied
    finally:
        stop_engine(copied.run)


def codes(context: Context, sinks: list[str]) -> set[str | None]:
    found = [read_progress(context.progress, sink) for sink in sinks]
    return {progress.error["code"] if progress and progress.error else None for progress in found}


def group_of(context: Context) -> int:
    """Return the process group of the driver: it, its JVM and its workers."""
    return os.getpgid(engine_state(context.progress)["pid"])


def test_a_driver_that_slept_while_another_took_over_writes_nothing(shop: Shop, tmp_path: Path) -> None:
    sinks = sorted(shop.sinks)
    people = shop.people(seed=31)
    people.start()
    elapse(2)
    sleeping = group_of(shop.context)
    os.killpg(sleeping, signal.SIGSTOP)
    try:
        with copy_of(shop.context, tmp_path) as copy:
            ensure_engine(copy)
            until(lambda: engine_state(copy.progress)["state"] == "ready")
            elapse(2)
            os.killpg(sleeping, signal.SIGCONT)
            until(lambda: codes(shop.context, sinks) == {"SINK_FENCED"})
            people.stop()
            seen = [found for found in measure(shop.context).sinks if found.sink in shop.sinks]
            assert {found.state for found in seen} == {"failed"}
            assert all("--take-over" in (found.remedy or "") for found in seen)
            shop.until_equal()
            assert codes(copy, sinks) == {None}

            shop.write(1.0, seed=32)
            for name in sinks:
                control_sink.resume(shop.context, name, take_over=True)
            shop.write(1.0, seed=33)
            shop.converge()
            until(lambda: codes(copy, sinks) == {"SINK_FENCED"})
    finally:
        os.killpg(sleeping, signal.SIGCONT)
    shop.write(1.0, seed=34)
    shop.converge()
