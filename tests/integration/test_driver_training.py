"""The driver's training does real work, or its cache is not taken into use."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.control.kafka import Kafka
from headrace.local import aot, driver
from headrace.local.artefacts import resolve
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(400)]


def test_a_trained_driver_has_applied_what_it_was_given(
    stack: RunningStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = resolve(["spark"])["spark"]
    monkeypatch.setattr(aot, "cache_root", lambda: tmp_path / "cache")
    cache = driver.driver_cache(jars)
    assert cache is not None
    bootstrap = stack.endpoints.kafka_bootstrap
    (work := tmp_path / "work").mkdir()
    try:
        assert driver.train_driver(jars, bootstrap, work)
    finally:
        Kafka(bootstrap).delete([driver._TOPIC])
    assert cache.usable()
