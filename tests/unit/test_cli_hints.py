"""What the command line prints to be pasted: it acts on the installation at hand, and no line is broken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli import home as cli_home
from headrace.cli import lag as lag_room
from headrace.cli import output
from headrace.cli import psql as psql_room
from headrace.cli import source as source_room
from headrace.cli.main import app
from headrace.control import deadletters, lag, tables
from headrace.control.registry import DeadLetterEntry, Registry, ResnapshotEntry, SinkEntry
from headrace.control.runs import start as runs
from headrace.control.verdicts import State
from headrace.model.finding import Finding, Severity
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.registry import config_model
from tests.support.entries import source_entry

TABLE = "public.a_table_with_a_name_that_is_longer_than_most_terminals_are_wide"
REMEDY = f"headrace resnapshot shop {TABLE} --rows-per-second 500 --max-latency-ms 20"
NOTE = lag.Note("TABLE_NOT_CAPTURED", "new", (TABLE,), f"{REMEDY} --why add", f"{REMEDY} --why decline")
SOURCE = lag.SourceLag("shop", State.FAILED, "it has failed", REMEDY, 0, 0, None, 0.0, (NOTE,))
SINK = lag.SinkLag(
    "search", "elasticsearch", "shop", State.FAILED, "failed", f"{REMEDY} --why sink", {}, 0, 0
)
TABLE_SEEN = lag.TableLag(
    "shop", TABLE, "search", State.FAILED, "failed", REMEDY, 0, None, 0, 0, 0, 0, None, None
)
REPORT = lag.LagReport(0, False, (SOURCE,), (SINK,), (TABLE_SEEN,))
LETTER = DeadLetterEntry(
    number=1, sink="lake", table=TABLE, row="1", topic="t", epoch=1, partition=0, offset=0,
    code="DELTA_VALUE_DATE", reason="column “until” holds what it cannot", at_ms=1, state="waiting", file="f",
)  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of an installation without servers, in which all is wrong that can be."""
    schema = TableSchema(
        TableId(*TABLE.split(".")),
        (Column("id", LogicalType.INT32), Column("until", LogicalType.DATE)),
        ("id",),
    )
    run = ResnapshotEntry(
        id="3f2a", source="shop", phase="failed", begun_ms=1, who="me", why="", reason="it failed",
        plan={"topics": [f"shop.{TABLE}"], "sinks": ["search"], "left_out": {TABLE: f"no. {REMEDY}"}},
        counts={}, error={"code": "NO", "hint": REMEDY},
    )  # fmt: skip
    with Registry(tmp_path / "registry.db").begin() as session:
        session.add(source_entry("shop", [schema]))
        session.flush()
        session.add(
            SinkEntry(
                name="search", kind="elasticsearch", source="shop", settings={}, incomplete={},
                incomplete_ms={}, tables={f"shop.{TABLE}": {"index": "i"}}, on_schema_change="lenient",
                created_ms=1,
            )
        )  # fmt: skip
        session.add(run)
    monkeypatch.setenv("HEADRACE_CONNECT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))  # what the command sets goes after the test
    monkeypatch.setattr(cli_home, "_named", [])
    for module in (lag_room, lag):
        monkeypatch.setattr(module, "measure", lambda *_: REPORT)
    monkeypatch.setattr(deadletters, "letters", lambda *_: [LETTER])
    monkeypatch.setattr(deadletters, "letter", lambda *_: (LETTER, _Record()))
    found = [Finding(Severity.ERROR, "NO", "It is unfit.", REMEDY)]
    monkeypatch.setattr(source_room, "check_again", lambda *_: found)

    def take_in(*_: object, say: Any, **__: object) -> str:
        say(f"first {REMEDY}")
        return TABLE

    monkeypatch.setattr(tables, "take_in", take_in)
    plan = runs.Plan("shop", {}, (), 1, {TABLE: f"no. {REMEDY}"})
    monkeypatch.setattr(runs, "plan", lambda *_, **__: plan)
    return tmp_path


class _Record:
    schema, key, value, headers = b"{}", b"1", None, ()


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have both streams be terminals of 60 columns."""
    for console in (output.out, output.err):
        for name, value in {"_force_terminal": True, "_width": 60, "_height": 25}.items():
            monkeypatch.setattr(console, name, value)


COMMANDS = {
    "lag": REMEDY,
    "lag ": f"{REMEDY} --why sink",
    "lag  ": f"{REMEDY} --why decline",
    "source show shop": REMEDY,
    "sink show search": f"{REMEDY} --why sink",
    "source check shop": REMEDY,
    "source tables add shop t": REMEDY,
    "source tables add shop t --no-wait": f"headrace resnapshot wait {TABLE}",
    "dlq list": "headrace dlq replay --sink lake --code DELTA_VALUE_DATE",
    "dlq show 1": "headrace dlq replay --sink lake --code DELTA_VALUE_DATE",
    "resnapshot show 3f2a": REMEDY,
    "resnapshot shop --dry-run": REMEDY,
    "resnapshot wait 3f2a": REMEDY,
}


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_to_be_pasted_is_whole_and_acts_on_the_installation_that_was_named(
    command: str, home: Path
) -> None:
    done = CliRunner().invoke(app, ["--home", str(home), *command.split()])
    whole = COMMANDS[command].replace("headrace ", f"headrace --home {home} ")
    assert whole in done.output, done.output
    assert "headrace resnapshot" not in done.output


@pytest.mark.parametrize(
    "command",
    [
        name
        for name in dict.fromkeys(map(str.strip, COMMANDS))
        if "--no-wait" not in name and "add" not in name
    ],
)
def test_json_tells_commands_of_the_installation_that_was_named(command: str, home: Path) -> None:
    done = CliRunner().invoke(app, ["--home", str(home), *command.split(), "--json"])
    line = (done.stderr or done.stdout).splitlines()[-1]
    assert json.loads(line)
    assert f"headrace --home {home} " in line
    assert "headrace resnapshot" not in line
    assert "headrace dlq" not in line


def test_the_remedy_of_each_table_is_told_and_each_but_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a sink tells is only the worst of its tables."""
    ways = (f"{REMEDY} --why sink", "headrace source refresh shop")
    seen = tuple(replace(TABLE_SEEN, remedy=way) for way in (ways[0], ways[1], ways[1], ""))
    for module in (lag_room, lag):
        monkeypatch.setattr(module, "measure", lambda *_: replace(REPORT, tables=seen))
    said = CliRunner().invoke(app, ["lag"]).stdout
    assert [said.count(way) for way in ways] == [1, 1]
    for module in (lag_room, lag):
        monkeypatch.setattr(module, "measure", lambda *_: replace(REPORT, tables=seen[1:2]))
    said = CliRunner().invoke(app, ["sink", "show", "search"]).stdout
    assert [said.count(f"remedy: {way}") for way in ways] == [1, 1]
    (table,) = json.loads(CliRunner().invoke(app, ["sink", "show", "search", "--json"]).stdout)[
        "tables"
    ].values()
    assert table["remedy"] == ways[1]


def test_a_dry_run_counts_the_rows_of_letters(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def letter(number: int, sink: str, table: str, row: str | None) -> DeadLetterEntry:
        return DeadLetterEntry(number=number, sink=sink, table=table, row=row)

    of = [
        ("a", "s.t", "1"),
        ("a", "s.t", "1"),
        ("b", "s.t", "1"),
        ("a", "s.u", "1"),
        ("a", "s.t", None),
        ("a", "s.t", None),
    ]
    found = [letter(number, *one) for number, one in enumerate(of, 1)]
    monkeypatch.setattr(deadletters, "letters", lambda *_: found)
    for words, what in (("replay", "apply again"), ("discard", "discard")):
        said = CliRunner().invoke(app, ["dlq", words, "--all", "--dry-run"]).stdout
        assert said == f"Would {what} 6 letters of 5 rows.\n"


def test_an_error_s_hint_acts_on_the_installation_that_was_named(home: Path) -> None:
    done = CliRunner().invoke(app, ["--home", str(home), "lag", "--wait", "0", "--json"])
    assert json.loads(done.stderr)["error"]["hint"] == f"headrace --home {home} lag"


def test_rows_that_a_database_tells_are_printed_as_they_are(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"hint": REMEDY, "remedy": "headrace lag"}

    class Database:
        def select(self, _: str) -> list[dict[str, str]]:
            return [row]

    monkeypatch.setattr(psql_room, "_database", lambda *_: Database())
    done = CliRunner().invoke(app, ["--home", str(home), "psql", "--json", "SELECT"])
    assert json.loads(done.stdout) == [row]


def test_a_report_in_sync_has_nothing_to_be_pasted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    well = replace(REPORT, in_sync=True, in_sync_age_seconds=1.0, sources=(), sinks=(), tables=())
    monkeypatch.setattr(lag_room, "measure", lambda *_: well)
    done = CliRunner().invoke(app, ["--home", str(home), "lag"])
    assert done.stdout.strip().splitlines()[-1] == "in sync as of 1.0 s ago"


@pytest.mark.parametrize("kind", LogicalType)
def test_a_letter_tells_a_policy_only_for_a_type_that_takes_one(kind: LogicalType) -> None:
    column = Column("until", kind, precision=38)
    letter = DeadLetterEntry(
        sink="lake", table="public.t", code=f"DELTA_VALUE_{kind.value.upper()}",
        reason="A value of column “until” does not fit.", state="waiting",
    )  # fmt: skip
    assert bool(deadletters.way_out(letter)) == (not config_model("delta").no_use(column))
