"""What people have written is printed as it stands, whatever it looks like to whom draws a terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from headrace.cli import home as cli_home
from headrace.cli import output
from headrace.cli import psql as psql_room
from headrace.cli.main import app
from headrace.control import deadletters, lag, tables
from headrace.control.deadletters import Replayed
from headrace.control.registry import Registry, ResnapshotEntry, SinkEntry
from headrace.control.verdicts import State
from tests.support.entries import source_entry

WRITTEN = "[orders] reload [/orders] [red]x[/]"
SEEN = lag.SinkLag("cache", "redis", "shop", State.FAILED, WRITTEN, "", {}, 0, 0)
SOURCE = lag.SourceLag("shop", State.FAILED, WRITTEN, "", 0, 0, None, 0.0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of an installation in which people have written what looks like markup."""
    registry = Registry(tmp_path / "registry.db")
    run = ResnapshotEntry(
        id="3f2a", source="shop", phase="completed", begun_ms=1, who=WRITTEN, why=WRITTEN,
        plan={"topics": ["shop.public.t"], "sinks": [], "left_out": {}}, counts={},
    )  # fmt: skip
    with registry.begin() as session:
        session.add(source_entry("shop", [], address=WRITTEN))
        session.flush()
        session.add(
            SinkEntry(
                name="cache", kind="redis", source="shop", settings={}, tables={}, incomplete={},
                incomplete_ms={}, on_schema_change="lenient", created_ms=1,
            )
        )  # fmt: skip
        session.add(run)
    registry.note("source shop", "resnapshot begun", why=WRITTEN)
    report = lag.LagReport(0, False, (SOURCE,), (SEEN,), ())
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.setenv("HEADRACE_CONNECT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setattr(cli_home, "_named", [])
    for where in ("headrace.cli.lag.measure", "headrace.control.lag.measure"):
        monkeypatch.setattr(where, lambda *_: report)
    monkeypatch.setattr(tables, "leave_out", lambda *_: None)
    monkeypatch.setattr(deadletters, "letters", lambda *_: [])
    monkeypatch.setattr(deadletters, "replay", lambda *_, **__: Replayed(1, 0, {WRITTEN: 1}))
    return tmp_path


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["resnapshot", "list"], 0),
        (["resnapshot", "show", "3f2a"], 0),
        (["journal"], 0),
        (["sink", "list"], 0),
        (["source", "list"], 0),
        (["source", "show", "shop"], 0),
        (["lag"], 1),
        (["source", "tables", "decline", "shop", WRITTEN], 0),
        (["dlq", "replay", "--all"], 1),
    ],
)
def test_words_in_brackets_are_no_markup(words: list[str], code: int) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == code, done.output
    assert WRITTEN in done.stdout


@pytest.mark.usefixtures("home")
def test_names_and_values_of_a_database_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    class Database:
        def select(self, _: str) -> list[dict[str, str]]:
            return [{"[/b]": WRITTEN}]

    monkeypatch.setattr(psql_room, "_database", lambda *_: Database())
    monkeypatch.setattr("shutil.which", lambda _: None)
    shown = CliRunner().invoke(app, ["psql", "SELECT"]).stdout
    assert "[/b]" in shown
    assert WRITTEN in shown


@pytest.mark.usefixtures("home")
def test_a_state_has_its_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    report = lag.LagReport(0, False, (), (replace(SEEN, reason=""),), ())
    monkeypatch.setattr("headrace.cli.lag.measure", lambda *_: report)
    for name, value in {"_force_terminal": True, "_width": 80, "_height": 25}.items():
        monkeypatch.setattr(output.out, name, value)
    monkeypatch.setattr(output.out, "_color_system", Console(color_system="standard")._color_system)
    assert "\x1b[31mfailed" in CliRunner().invoke(app, ["lag"]).stdout
