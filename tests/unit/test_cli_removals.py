"""What goes for good is said before, and asked about where a person sits; a purge leaves no slot behind."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from connectors.base import Left
from headrace.cli import ask as asking
from headrace.cli import home as cli_home
from headrace.cli import remove as removal
from headrace.cli import tables as tables_room
from headrace.control.adding import begun_source
from headrace.control.begun import Before, end
from headrace.control.capture import secret_of
from headrace.control.context import Context
from headrace.control.registry import Registry, SinkEntry
from headrace.control.runs.repository import change, insert
from headrace.control.sink import LeftTarget
from headrace.local.ports import PORT_NAMES
from headrace.model.errors import HeadraceError
from tests.support.cold_home import add, cold_home, told


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home whose servers have never run; a source of it follows a database elsewhere."""
    root = cold_home(tmp_path / "home")
    add(root, "shop", "postgresql://me@db.example:5432/shop", sinks=("cache",))
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    return root


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what was removed; nothing is, for there are no servers."""
    done: list[str] = []

    def source(context: Context, name: str, **_: object) -> Left:
        end(Registry(context.registry), secret_of(context, name), name, Before())
        done.append(name)
        return Left()

    def sink(_: Context, name: str, **__: object) -> list[LeftTarget]:
        done.append(name)
        return []

    monkeypatch.setattr(removal, "remove_source", source)
    monkeypatch.setattr(removal, "remove_sink", sink)
    monkeypatch.setattr(tables_room, "take_out", lambda _, name, *__, **___: done.append(name))
    return done


def test_what_would_go_with_a_source_is_said(home: Path, removed: list[str]) -> None:
    refused = json.loads(told("source", "remove", "shop", "--dry-run", "--json", code=2).stderr)["error"]
    assert refused["code"] == "SOURCE_IN_USE"
    add(home, "depot", "postgresql://me@db.example:5432/depot")
    said = json.loads(told("source", "remove", "depot", "--dry-run", "--json").stdout)
    assert (said["source"], said["dry_run"]) == ("depot", True)
    assert "depot.public.goods" in said["goes"]["topic"]
    assert said["goes"]["slot"] == said["goes"]["connector"] == ["headrace_depot"]
    assert "topic            depot.public.goods" in told("source", "remove", "depot", "--dry-run").stdout
    left = json.loads(told("source", "remove", "depot", "--leave-database", "--dry-run", "--json").stdout)
    assert "slot" not in left["goes"]
    assert "goes_where_answered" not in left
    assert removed == []


def test_what_a_connect_that_is_gone_keeps_is_not_said_to_go_for_good(home: Path, removed: list[str]) -> None:
    add(home, "depot", "postgresql://me@db.example:5432/depot")
    words = ("source", "remove", "depot", "--leave-connect", "--dry-run")
    said = json.loads(told(*words, "--json").stdout)
    assert said["goes"].keys() == {"slot", "publication", "table", "file"}
    assert said["goes_where_answered"]["connector"] == ["headrace_depot"]
    assert "depot.public.goods" in said["goes_where_answered"]["topic"]
    goes, _, perhaps = told(*words).stdout.partition("Where Connect and Kafka answer")
    assert "depot.public.goods" not in goes
    assert "elsewhere they stay" in perhaps
    assert "depot.public.goods" in perhaps
    assert removed == []


def test_what_would_go_with_a_sink_is_said(home: Path, removed: list[str]) -> None:
    said = json.loads(told("sink", "remove", "cache", "--purge", "--dry-run", "--json").stdout)
    wanted = ["shop.public.goods (prefix goods)", "shop.public.orders (prefix orders)"]
    assert said["goes"]["target"] == wanted
    said = json.loads(told("sink", "remove", "cache", "--dry-run", "--json").stdout)
    assert said["goes"]["target"] == []
    assert removed == []


def test_what_would_go_with_a_table_is_said(home: Path, removed: list[str]) -> None:
    words = ("source", "tables", "remove", "shop", "orders", "--purge", "--dry-run", "--json")
    said = json.loads(told(*words).stdout)
    wanted = {"topic": ["shop.public.orders"], "target": ["cache: shop.public.orders (prefix orders)"]}
    assert said == {"source": "shop", "dry_run": True, "goes": wanted}
    last = ("public.goods", "public.orders")
    refused = told("source", "tables", "remove", "shop", *last, "--dry-run", "--json", code=2)
    error = json.loads(refused.stderr)["error"]
    assert (error["code"], error["hint"]) == ("TABLE_LAST", "headrace sink show cache")
    refused = told("source", "tables", "remove", "shop", *last, "people", "--dry-run", "--json", code=2)
    error = json.loads(refused.stderr)["error"]
    assert (error["code"], error["hint"]) == ("TABLE_LAST", "headrace source show shop")
    run = insert(Registry(home / "registry.db"), "shop", ["shop.public.orders"], [], queue=False, why="")
    error = json.loads(told(*words, code=2).stderr)["error"]
    assert (error["code"], error["hint"]) == ("RESNAPSHOT_TABLE_BUSY", f"headrace resnapshot wait {run.id}")
    change(Registry(home / "registry.db"), run.id, wanted="pause")
    error = json.loads(told(*words, code=2).stderr)["error"]
    assert error["hint"] == f"headrace resnapshot abort {run.id}", "nobody would end a wait for it"
    assert removed == []


def test_a_name_that_exists_is_shown_and_not_to_be_destroyed(home: Path) -> None:
    registry = Registry(home / "registry.db")
    with pytest.raises(HeadraceError) as source:
        begun_source(registry, "shop")
    assert (source.value.code, source.value.hint) == ("SOURCE_EXISTS", "headrace source show shop")
    words = ("sink", "add", "cache", "--kind", "redis", "--url", "redis://cache.example", "--json")
    error = json.loads(told(*words, code=2).stderr)["error"]
    assert (error["code"], error["hint"]) == ("SINK_EXISTS", "headrace sink show cache")


@pytest.mark.parametrize(
    "words",
    [
        ("source", "remove", "depot"),
        ("sink", "remove", "cache", "--purge"),
        ("source", "tables", "remove", "shop", "orders", "--purge"),
    ],
)
def test_a_person_is_asked_and_a_script_is_not(
    home: Path, removed: list[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    add(home, "depot", "postgresql://me@db.example:5432/depot")
    with monkeypatch.context() as patch:
        patch.setattr(asking, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
        result = told(*words, code=1, answer="n\n")
        assert "for good. Go on?" in result.stderr
        assert "Nothing was removed." in result.stderr
        assert removed == []
        told(*words, answer="y\n")
        assert len(removed) == 1
        if words[1] != "remove" or words[0] == "sink":
            assert "Go on?" not in told(*words, "--yes", "--json").stderr
            assert "Go on?" in told(*words, "--json", code=1, answer="n\n").stderr
            assert len(removed) == 2
            result = told(*words, "--json", answer="y\n")
            assert "Go on?" not in result.stdout
            assert json.loads(result.stdout.splitlines()[-1])
    removed.clear()
    if words[2] == "depot":
        add(home, "depot", "postgresql://me@db.example:5432/depot")
    told(*words)
    assert len(removed) == 1


def test_a_sink_that_keeps_its_data_is_removed_without_a_question(
    home: Path, removed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    told("sink", "remove", "cache")
    assert removed == ["cache"]


def test_a_purge_leaves_no_slot_in_a_database_elsewhere(home: Path, removed: list[str]) -> None:
    add(home, "own", f"postgresql://postgres@127.0.0.1:{1 + PORT_NAMES.index('postgres')}/postgres")
    error = json.loads(told("down", "--purge", "--json", code=2).stderr)["error"]
    assert (error["code"], error["hint"]) == ("SOURCES_LEFT", "headrace source remove shop")
    assert "shop (postgresql://me@db.example:5432/shop)" in error["message"]
    assert "own" not in error["message"]
    assert Registry(home / "registry.db").source("shop")
    with Registry(home / "registry.db").begin() as session:
        session.delete(session.get_one(SinkEntry, "cache"))
    told(*shlex.split(error["hint"])[1:])
    told("down", "--purge")
    assert not home.exists()


def test_a_purge_that_forgets_sources_goes_on(home: Path) -> None:
    told("down", "--purge", "--forget-sources")
    assert not home.exists()


def test_a_damaged_registry_does_not_keep_a_home_from_being_purged(home: Path) -> None:
    for path in home.glob("registry.db*"):
        path.unlink()
    (home / "registry.db").write_bytes(b"no database" * 1000)
    error = json.loads(told("down", "--purge", "--json", code=1).stderr)["error"]
    assert error["code"] == "REGISTRY_UNUSABLE"
    assert "is not known" in error["message"]
    hint = error["hint"].rpartition("then: ")[2]
    assert hint == "headrace down --purge --forget-sources"
    told(*shlex.split(hint)[1:])
    assert not home.exists()


def test_down_without_purge_asks_no_registry(home: Path) -> None:
    told("down")
    assert Registry(home / "registry.db").source("shop")


def test_a_slot_that_stays_unasked_is_no_success(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(home, "depot", "postgresql://me@db.example:5432/depot")
    left = Left(("SELECT pg_drop_replication_slot('headrace_depot');",), "permission denied", slot=True)
    monkeypatch.setattr(removal, "remove_source", lambda *_, **__: left)
    words = ("source", "remove", "depot")
    assert left.statements[0] in told(*words, code=1).stdout
    assert json.loads(told(*words, "--json", code=1).stdout)["slot"] is True
    told(*words, "--leave-database")
    monkeypatch.setattr(removal, "remove_source", lambda *_, **__: replace(left, slot=False))
    told(*words)


def test_what_a_purge_would_take_is_said_and_a_person_is_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("down", "--purge", "--forget-sources")
    assert (
        json.loads(told("down", "--purge", "--dry-run", "--json", code=2).stderr)["error"]["code"]
        == "SOURCES_LEFT"
    )
    said = json.loads(told(*words, "--dry-run", "--json").stdout)
    assert said == {"home": str(home), "dry_run": True, "stops": [], "goes": {"directory": [str(home)]}}
    assert f"directory        {home}" in told(*words, "--dry-run").stdout
    assert json.loads(told("down", "--dry-run", "--json").stdout)["goes"] == {"directory": []}
    monkeypatch.setattr(asking, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    result = told(*words, code=1, answer="n\n")
    assert f"{home} with all data of its servers for good. Go on?" in result.stderr
    assert Registry(home / "registry.db").source("shop")
    assert "Go on?" not in told("down").stderr
    assert "Go on?" not in told(*words, "--yes").stderr
    assert not home.exists()
    assert "Go on?" not in told("down", "--purge").stderr, "there is nothing"


def test_a_directory_of_others_would_not_be_purged(home: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    words = ("down", "--purge", "--dry-run", "--json", "--home", str(tmp_path / "theirs"))
    assert json.loads(told(*words, code=2).stderr)["error"]["code"] == "HOME_NOT_OURS"
