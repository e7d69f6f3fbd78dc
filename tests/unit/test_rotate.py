"""A password that the connector cannot be told of is refused, and the one that it has stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from connectors.base import Capture
from connectors.postgres.address import check_address, parameters
from headrace.control import rotate, source
from headrace.control.capture import secret_of
from headrace.control.context import Context
from headrace.model.errors import SourceError
from headrace.model.finding import Finding
from tests.support.obeying import URL, Servers, obeying


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    yield from obeying(monkeypatch)


@pytest.mark.parametrize(("password", "refused"), [("better", False), ("better ", True)])
def test_blanks_that_connect_cuts_off_are_refused(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch, password: str, refused: bool
) -> None:
    servers.may_go_on.set()
    source.add(context, "shop", URL, wait=False)

    def check_anew(_: Servers, __: Capture) -> list[Finding]:
        return list(check_address({**parameters(URL), "password": password}))

    monkeypatch.setattr(Servers, "check_anew", check_anew, raising=False)
    monkeypatch.setattr(Servers, "start_over", Servers.forget_offsets, raising=False)
    monkeypatch.setattr(Servers, "restart", Servers.forget_offsets, raising=False)
    monkeypatch.setattr(rotate, "Connect", lambda _: servers)
    with pytest.raises(SourceError, match="blanks") if refused else nullcontext():
        rotate.rotate_source(context, "shop", password)
    assert secret_of(context, "shop").read() == ("secret" if refused else password)
