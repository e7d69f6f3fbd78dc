"""What an `add` that was killed has made before it registered: it has a name, and goes by that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.base import Capture
from headrace.cli import home as cli_home
from headrace.cli import lag as lag_room
from headrace.config.secrets import SecretRef
from headrace.config.source import SourceSettings
from headrace.control import epochs, lag, source, source_remove, would_go
from headrace.control.begun import Before, Undo, begin, noted
from headrace.control.capture import secret_of
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.model.errors import HeadraceError, SourceError, StackError
from tests.support.cold_home import TABLES, cold_home, told
from tests.support.killed import Dropping, Killed, killing
from tests.support.obeying import GOODS, URL, Command, Servers, obeying
from tests.support.waiting import ended, until


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    yield from obeying(monkeypatch)


REMEDY = "headrace source remove shop"
AWAY = "a command that adds or removes it was broken off: what it has made may be there still"


class Dropped(Dropping, Undo):
    """Of a source that is added."""


STEPS = ((source, "begin"), (SecretRef, "store"), (source, "making"), (Servers, "setup"), (Servers, "create"))


def killed(context: Context, patch: pytest.MonkeyPatch, owner: object, step: str) -> None:
    """Have an ``add`` end when a step of it has returned, as by a kill."""
    with patch.context() as patched:
        patched.setattr(source, "Undo", Dropped)
        patched.setattr(owner, step, killing(getattr(owner, step)))
        with pytest.raises(Killed):
            source.add(context, "shop", URL, wait=False)


def said(context: Context) -> list[tuple[str, lag.State, str, str]]:
    return [(one.source, one.state, one.reason, one.remedy) for one in lag.measure(context).sources]


def topics_of(servers: Servers) -> set[str]:
    return servers.topics - {epochs.LEDGER}


@pytest.mark.parametrize(("owner", "step"), STEPS)
def test_what_a_killed_add_has_made_is_told_and_goes_by_its_name(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch, owner: object, step: str
) -> None:
    servers.may_go_on.set()
    servers.topics.add("shop.public.goods")  # empty, and of somebody else
    killed(context, monkeypatch, owner, step)
    assert Registry(context.registry).sources() == []
    assert said(context) == [("shop", lag.State.FAILED, AWAY, REMEDY)]
    assert not lag.measure(context).is_well
    assert "headrace_shop" in would_go.of_source(context, "shop")["publication"]
    source.remove(context, "shop")
    assert (servers.prepared, topics_of(servers)) == (set(), {"shop.public.goods"})
    assert not secret_of(context, "shop").path.exists()
    assert said(context) == []
    with pytest.raises(HeadraceError, match="no source"):
        source.remove(context, "shop")


@pytest.mark.parametrize(("owner", "step"), STEPS)
def test_an_add_that_was_killed_before_it_registered_is_given_again(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch, owner: object, step: str
) -> None:
    servers.may_go_on.set()
    killed(context, monkeypatch, owner, step)
    with pytest.raises(HeadraceError) as refused:
        source.add(context, "shop", URL, settings=SourceSettings(heartbeat_ms=500), wait=False)
    assert (refused.value.code, refused.value.hint) == ("SOURCE_EXISTS", "headrace source show shop")
    source.add(context, "shop", URL, wait=False)
    assert noted(Registry(context.registry)) == {}
    assert servers.prepared == {"shop"}
    assert secret_of(context, "shop").read() == "secret"


def test_an_add_at_work_is_no_trouble(context: Context, servers: Servers) -> None:
    adding = Command(source.add, context, "shop", URL, wait=False)
    until(servers.preparing.is_set)
    ((name, state, _, remedy),) = said(context)
    assert (name, state, remedy) == ("shop", lag.State.SETUP, "")
    servers.may_go_on.set()
    ended(adding)
    assert adding.code == ""
    assert noted(Registry(context.registry)) == {}


def test_what_others_have_under_the_name_since_stays(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another installation whose servers are the same could take the name: none of ours has run."""
    servers.may_go_on.set()
    killed(context, monkeypatch, Servers, "create")
    servers.connectors["headrace_shop"] = {"database.password": "${file:/elsewhere/shop.properties:password}"}
    there = topics_of(servers)
    source.remove(context, "shop")
    assert (servers.prepared, topics_of(servers)) == ({"shop"}, there)
    assert servers.connectors.keys() == {"headrace_shop"}
    assert not secret_of(context, "shop").path.exists()
    assert said(context) == []


def test_a_slot_and_records_of_others_stay(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.may_go_on.set()
    killed(context, monkeypatch, Servers, "create")

    def taken(_: Capture) -> None:
        raise SourceError("there is one", code="SOURCE_SLOT_TAKEN")

    there = topics_of(servers)
    monkeypatch.setattr(servers, "refuse_taken", taken)
    monkeypatch.setattr(servers, "ends", lambda *_, **__: {("shop.public.goods", 0): (0, 7)})
    source.remove(context, "shop")
    assert (servers.prepared, topics_of(servers)) == ({"shop"}, there)
    assert said(context) == []


@pytest.mark.parametrize("server", ["database", "Kafka", "Connect"])
def test_what_a_refused_add_could_not_take_back_is_told_and_goes_by_its_name(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    servers.may_go_on.set()
    first = Servers.delete

    def fails(*_: object, **__: object) -> None:
        raise HeadraceError("no", code="CONNECTOR_FAILED")

    def unreachable(_: Servers, what: object = None, *__: object) -> None:
        if server == "database":
            raise SourceError("it does not answer", code="SOURCE_UNREACHABLE")
        if isinstance(what, str) == (server == "Connect"):
            raise StackError("it does not answer", code="CONNECTOR_REFUSED")
        first(servers, what)

    with monkeypatch.context() as patch:
        patch.setattr(source, "note", fails)
        patch.setattr(Servers, "teardown" if server == "database" else "delete", unreachable)
        patch.setattr(servers, "leftovers", lambda _: ("DROP …;",), raising=False)
        with pytest.raises(HeadraceError):
            source.add(context, "shop", URL, wait=False)
    assert Registry(context.registry).sources() == []
    assert said(context) == [("shop", lag.State.FAILED, AWAY, REMEDY)]
    source.remove(context, "shop")
    assert (servers.prepared, topics_of(servers), servers.connectors) == (set(), set(), {})
    assert not secret_of(context, "shop").path.exists()
    assert said(context) == []


def test_a_removal_that_is_killed_at_its_end_leaves_nothing_without_a_name(
    context: Context, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.may_go_on.set()
    source.add(context, "shop", URL, wait=False)

    def dies(_: SecretRef) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(SecretRef, "forget", dies)
        with pytest.raises(Killed):
            source_remove.remove(context, "shop")
    assert said(context) == [("shop", lag.State.FAILED, AWAY, REMEDY)]
    source.remove(context, "shop")
    assert not secret_of(context, "shop").path.exists()
    assert said(context) == []


def test_the_command_line_tells_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = cold_home(tmp_path / "home")
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    for room in (lag, lag_room):
        monkeypatch.setattr(room, "Kafka", lambda _: None)
    capture = Capture("shop", (GOODS, TABLES[1]), "placeholder", "password")
    begin(Registry(root / "registry.db"), capture, "postgres", URL, Before())
    (listed,) = json.loads(told("source", "list", "--json").stdout)
    assert (listed["source"], listed["state"], listed["remedy"]) == ("shop", "failed", REMEDY)
    assert listed["address"] == URL
    assert "shop" in told("source", "list").stdout
    assert json.loads(told("source", "show", "shop", "--json").stdout)["reason"] == AWAY
    assert REMEDY in told("lag", code=1).stdout
    goes = json.loads(told("source", "remove", "shop", "--dry-run", "--json").stdout)["goes"]
    assert "shop.public.orders" in goes["topic"]
    told("source", "remove", "shop")
    assert json.loads(told("source", "list", "--json").stdout) == []
