"""A server that cannot be started, for whatever reason, keeps none waiting that needs it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.local import starter
from headrace.local.events import StackEvent
from headrace.local.starter import Starter
from headrace.model.errors import StackError


def test_an_error_of_the_system_is_told_and_ends_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[StackEvent] = []
    site: Any = SimpleNamespace(home=SimpleNamespace(pidfile=lambda name: tmp_path / name), ports={})
    begun = Starter(site, told.append, tmp_path / "ports")

    def launch_once(_: Starter, server: Any, __: frozenset[str]) -> None:
        if server.name == "kafka":
            raise OSError(122, "Disk quota exceeded")
        raise StackError("it had no broker", code="STACK_SERVER_DIED")

    monkeypatch.setattr(Starter, "_launch_once", launch_once)
    monkeypatch.setattr(starter, "check_free", lambda *_: None)
    plan = SimpleNamespace(aot=None)
    servers = [SimpleNamespace(name=name, ports=(), prepare=lambda _: plan) for name in ("kafka", "connect")]
    with pytest.raises(StackError) as caught:
        begun.start(cast("Any", servers))
    assert (caught.value.code, "Disk quota exceeded" in caught.value.message) == ("STACK_NOT_STARTED", True)
    assert [event.server for event in told if event.state == "failed"] == ["kafka", "connect"]
