"""The Spark driver dies in the middle of its work, anywhere in it; nothing is lost and nothing doubled."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from headrace.control.runner import engine_state, ensure_engine, stop_engine
from headrace.observe.failpoints import POINTS, POINTS_OF
from tests.support.patience import WAIT_S
from tests.support.shop import Shop
from tests.support.waiting import elapse, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]


KINDS = ("elasticsearch", "redis", "delta")
LATER = "settle.after_progress"
"""Behind it Spark writes the end of the batch into its checkpoint; it dies while that is under way."""


def driver(shop: Shop) -> int:
    return int(engine_state(shop.context.progress)["pid"])


def wait_for_another(shop: Shop, dead: int) -> None:
    def another() -> bool:
        state = engine_state(shop.context.progress)
        return bool(state["state"] == "ready" and state["pid"] != dead)

    until(another)


def test_the_driver_is_killed_while_people_write_and_comes_back_by_itself(shop: Shop) -> None:
    people = shop.people(seed=11, rate=300, bulk_rows=400, bulk_after=0.5)
    people.start()
    until(lambda: people.tally().changes > 100)
    first = driver(shop)
    os.kill(first, signal.SIGKILL)
    wait_for_another(shop, first)
    elapse(1.0)
    assert stop_engine(shop.context.run, grace=WAIT_S)  # asked to end, in the middle of a batch, it does so
    assert engine_state(shop.context.progress)["state"] == "stopped"
    ensure_engine(shop.context)
    assert people.stop().changes > 400
    shop.converge()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_it_dies_at_every_seam_of_a_batch(
    shop: Shop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    kind: str,
) -> None:
    # As few as keep batches coming: what they write is replayed by every test that comes after.
    people = shop.people(seed=12, rate=30)
    people.start()
    request.addfinalizer(people.stop)  # or they would write for ever, and no later test come to rest
    points = (*POINTS, *POINTS_OF.get(kind, ()))
    actions = [*((point, "kill@2") for point in points), (LATER, "later:0.01@3")]
    fired = []
    for number, (point, action) in enumerate(actions):
        log = tmp_path / str(number)
        stop_engine(shop.context.run)
        with monkeypatch.context() as armed:
            armed.setenv("HEADRACE_FAILPOINTS", f"{point}/{kind}={action}")
            armed.setenv("HEADRACE_FAILPOINTS_LOG", str(log))
            ensure_engine(shop.context)
        log.touch()
        until(lambda: log.read_text().endswith("\n"), why=lambda: f"{point} was not reached")  # noqa: B023
        fired.append(log.read_text().partition("\n")[0])
    assert fired == [f"{point}/{kind}={action.partition('@')[0]}" for point, action in actions]
    stop_engine(shop.context.run)
    ensure_engine(shop.context)
    assert people.stop().changes > 0
    shop.converge()
