"""A name that nobody ever knew is refused where an empty answer would read as good news."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import home as cli_home
from headrace.control import deadletters
from headrace.control.registry import DeadLetterEntry, Registry
from tests.support.cold_home import add, cold_home, told


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with a source, a sink of it, and a letter of a sink that is gone."""
    root = cold_home(tmp_path / "home")
    add(root, "shop", "postgresql://me@db.example:5432/shop", sinks=("cache",))
    registry = Registry(root / "registry.db")
    registry.note("sink lake", "removed", purged=True)
    registry.note("source depot", "added", tables=["public.boxes"])
    for sink, table in (("search", "public.orders"), ("cache", "public.goods")):
        with registry.begin() as session:
            session.add(
                DeadLetterEntry(
                    sink=sink, topic=f"shop.{table}", epoch=1, partition=0, offset=0, table=table, row="1",
                    code="NO", reason="", at_ms=1, file="x.avro", state="waiting",
                )
            )  # fmt: skip
    monkeypatch.setattr(deadletters, "_index", lambda *_: None)
    monkeypatch.setattr(deadletters, "_follow_holds", lambda *_: None)
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    return root


def refused(*words: str) -> Any:
    return json.loads(told(*words, "--json", code=2).stderr)["error"]


@pytest.mark.parametrize(
    ("words", "code", "meant"),
    [
        (("dlq", "list", "--sink", "cahce"), "SINK_UNKNOWN", "cache"),
        (("dlq", "discard", "--sink", "serch"), "SINK_UNKNOWN", "search"),
        (("dlq", "replay", "--sink", "cach"), "SINK_UNKNOWN", "cache"),
        (("dlq", "list", "--table", "order"), "TABLE_UNKNOWN", "public.orders"),
        (("journal", "--source", "shp"), "SOURCE_UNKNOWN", "shop"),
        (("journal", "--sink", "lkae"), "SINK_UNKNOWN", "lake"),
        (("resnapshot", "list", "--source", "depott"), "SOURCE_UNKNOWN", "depot"),
    ],
)
def test_a_name_that_nobody_knew_is_refused_with_the_nearest(
    home: Path, words: tuple[str, ...], code: str, meant: str
) -> None:
    error = refused(*words)
    assert error["code"] == code
    assert error["hint"].startswith(f"Did you mean {meant}? Known: ")


def test_what_was_removed_stays_reachable(home: Path) -> None:
    assert json.loads(told("dlq", "list", "--sink", "search", "--json").stdout)["total"] == 1
    assert json.loads(told("dlq", "list", "--sink", "lake", "--json").stdout)["total"] == 0
    assert len(json.loads(told("journal", "--sink", "lake", "--json").stdout)) == 1
    assert len(json.loads(told("journal", "--source", "depot", "--json").stdout)) == 1
    assert json.loads(told("resnapshot", "list", "--source", "depot", "--json").stdout) == []
    assert json.loads(told("dlq", "list", "--table", "boxes", "--json").stdout)["total"] == 0


def test_a_table_without_a_schema_is_in_public(home: Path) -> None:
    for name in ("orders", "public.orders"):
        found = json.loads(told("dlq", "list", "--table", name, "--json").stdout)
        assert [letter["table"] for letter in found["letters"]] == ["public.orders"]


@pytest.mark.parametrize("words", [("replay",), ("discard",), ("discard", "--dry-run"), ("show",)])
def test_a_number_that_no_letter_has_is_refused(home: Path, words: tuple[str, ...]) -> None:
    error = refused("dlq", *words, "77")
    assert (error["code"], error["hint"]) == ("LETTER_UNKNOWN", "headrace dlq list --state all")
    assert "77" in error["message"]


def test_one_unknown_number_among_others_discards_none(home: Path) -> None:
    assert refused("dlq", "discard", "1", "77")["code"] == "LETTER_UNKNOWN"
    assert json.loads(told("dlq", "list", "--json").stdout)["total"] == 2
    assert json.loads(told("dlq", "discard", "1", "--json").stdout) == {"discarded": 1}


def test_a_journal_of_a_source_and_a_sink_at_once(home: Path) -> None:
    error = refused("journal", "--source", "shop", "--sink", "lake")
    assert (error["code"], error["hint"]) == ("JOURNAL_SOURCE_OR_SINK", "headrace journal --sink lake")
    told(*error["hint"].split()[1:])
