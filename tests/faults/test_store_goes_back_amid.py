"""A store is put back between a batch's look at it and the batch's end: it is looked at anew, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.control.runner import ensure_engine, stop_engine
from tests.faults.test_store_goes_back import backups
from tests.support.shop import Shop
from tests.support.waiting import until
from tests.support.watched import watched

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(600)]

KINDS = {"elasticsearch": "search", "redis": "cache", "delta": "lake"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_lacks_is_applied_before_the_batch_is_again(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, kind: str
) -> None:
    log = tmp_path / "fired"
    log.touch()
    shop.write(1.0, seed=61)
    shop.converge()
    with backups(shop, tmp_path) as restores:
        shop.write(1.0, seed=62)  # is settled, and goes with the store
        shop.converge()
        stop_engine(shop.context.run)
        with monkeypatch.context() as armed:
            armed.setenv("HEADRACE_FAILPOINTS", f"settle.after_dead_letters/{kind}=sleep:10@3")
            armed.setenv("HEADRACE_FAILPOINTS_LOG", str(log))
            ensure_engine(shop.context)
        people = shop.people(seed=63, rate=30)
        people.start()
        request.addfinalizer(people.stop)
        until(lambda: log.read_text().endswith("\n"))
        restores[KINDS[kind]]()
        with watched(shop.context, shop.is_equal) as seen:
            assert people.stop().changes > 0
            shop.until_equal()
        assert not seen.false_greens
    shop.converge()
