"""A sink that is closed while its mark is being renewed leaves no error."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from sinks.redis import moment
from sinks.redis.moment import Moment
from tests.support.waiting import ended


class _Closing:
    """A client that is closed while it is used, as one whose socket goes."""

    def __init__(self) -> None:
        self.moment: Moment | None = None

    def hlen(self, _: str) -> int:
        return 0

    def pipeline(self, **_: object) -> _Closing:
        return self

    def __enter__(self) -> _Closing:
        return self

    def __exit__(self, *_: object) -> None: ...

    def hset(self, *_: object) -> None: ...

    def info(self, *_: object) -> None: ...

    def execute(self) -> list[object]:
        return [{"run_id": "1"}, None]

    def eval(self, *_: object) -> int:
        assert self.moment is not None
        self.moment.close()
        raise TypeError("argument must be an int, or have a fileno() method.")


def test_a_mark_that_is_renewed_when_its_client_closes_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    monkeypatch.setattr(moment, "_BEAT_S", 0.0)
    client = _Closing()
    client.moment = Moment(cast("Any", client), "shop")
    client.moment.look("progress", ())
    assert client.moment._beating is not None
    ended(client.moment._beating)
    assert not raised
