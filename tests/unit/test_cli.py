"""The command line: what it imports before it begins, its list of commands, and how wide its tables are."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from headrace.cli import home as cli_home
from headrace.cli import lag as lag_room
from headrace.cli import output, show
from headrace.cli.main import app
from headrace.cli.rooms import ROOMS
from headrace.control.lag import LagReport, TableLag
from headrace.control.verdicts import State
from headrace.observe import pidfile
from tests.support.waiting import ended

ROOT = Path(__file__).parents[2]
HEAVY = {"pyspark", "py4j", "pandas", "numpy", "pyarrow", "deltalake", "fastavro", "jpype", "cryptography"}
SERVERS = {"sqlalchemy", "psycopg", "confluent_kafka", "httpx", "redis", "elastic_transport", "pydantic"}


def imported(statement: str) -> set[str]:
    """Return the packages that a new Python has imported after a statement."""
    asked = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    answer = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    return set(answer.stdout.splitlines()[-1].split())


def test_help_imports_no_client_and_no_engine() -> None:
    found = imported(
        "from headrace.cli.main import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    pass"
    )
    assert not found & (HEAVY | SERVERS)


def test_the_version_is_told() -> None:
    told = CliRunner().invoke(app, ["--version"])
    assert (told.exit_code, told.stdout) == (0, f"headrace {version('headrace')}\n")


def test_lag_imports_no_engine_before_it_begins() -> None:
    assert not imported("import headrace.cli.lag, headrace.cli.journal") & (HEAVY | {"spark_jobs", "sinks"})


def test_no_command_that_only_controls_imports_spark() -> None:
    found = imported("from headrace.cli import dlq, resnapshot, sink, source")
    assert not found & (HEAVY - {"fastavro"})  # letters are Avro files


def test_every_room_with_commands_is_in_the_list() -> None:
    def registers(path: Path) -> bool:
        return any(
            isinstance(found, ast.FunctionDef) and found.name == "register"
            for found in ast.parse(path.read_text(encoding="utf-8")).body
        )

    rooms = {path.stem for path in (ROOT / "headrace/cli").glob("*.py") if registers(path)}
    assert rooms == {module for module, _ in ROOMS.values()}


def test_the_list_says_of_each_command_what_its_own_help_says() -> None:
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        said = "" if command.hidden else " ".join((command.help or "").split("\n\n")[0].split())
        assert ROOMS[name][1] == said


def a_report(table: str, *, rejected: int = 0) -> LagReport:
    facts = {"state": State.RESYNC_REQUIRED, "reason": "", "lag_records": 1_234_567, "applied": 9_876_543}
    known = {
        "table": table,
        "source": "shop",
        "sink": "search",
        "freshness_seconds": 3.1,
        "stale": 0,
        "behind": 0,
        "rejected": rejected,
        **facts,
    }
    names = TableLag.__dataclass_fields__
    return LagReport(0, False, (), (), (TableLag(**{name: known.get(name) for name in names}),))  # type: ignore[arg-type]


@pytest.mark.parametrize("rejected", [0, 12])
def test_lag_breaks_no_name_at_80_columns(rejected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    terminal = Console(file=text, force_terminal=True, color_system=None, width=80)
    for module in (lag_room, show):
        monkeypatch.setattr(module, "out", terminal)
    terminal.print(lag_room.render(a_report("public.order_items", rejected=rejected)))
    line = next(line for line in text.getvalue().splitlines() if "order_items" in line)
    assert line.startswith("public.order_items ")
    assert "resync_required" in line
    assert "1,234,567" in line
    assert ("rejected" in text.getvalue()) or not rejected


def test_what_goes_into_a_pipe_is_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setattr(output.out, "_file", text)
    table = f"public.{'x' * 63}"
    output.out.print(lag_room.render(a_report(table, rejected=12)))
    line = next(line for line in text.getvalue().splitlines() if table in line)
    assert "9,876,543" in line


def test_down_stops_the_engine_that_applies_to_servers_of_ones_own(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as engine:
        (tmp_path / "run").mkdir()
        pidfile.write(tmp_path / "run/engine.pid", engine.pid)
        told = CliRunner().invoke(app, ["down", "--home", str(tmp_path), "--json"])
        assert json.loads(told.stdout)["stopped"] == ["engine"]
        ended(engine)
    assert "nothing" in CliRunner().invoke(app, ["down", "--home", str(tmp_path)]).stdout


def test_a_command_in_a_hint_that_names_a_home_is_given_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_home, "_named", [Path("/here")])
    told = cli_home.pasteable("headrace lag; or headrace demo --home DIRECTORY, or `headrace up` with --home")
    wanted = "headrace --home /here lag; or headrace demo --home DIRECTORY, or `headrace --home /here up`"
    assert told == f"{wanted} with --home"


@pytest.mark.parametrize("words", [("--home", "HOME", "lag"), ("lag", "--home", "HOME")])
def test_a_hint_names_the_home_that_the_command_was_given(words: tuple[str, ...], tmp_path: Path) -> None:
    home = tmp_path / "no where"
    given = [str(home) if word == "HOME" else word for word in words]
    command = [sys.executable, "-c", "from headrace.cli.main import run; run()", *given]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert f"headrace --home '{home}' up" in told
