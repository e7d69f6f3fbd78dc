"""``headrace lag --watch``: every look is told, also into a pipe, until somebody interrupts it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli import lag as lag_room
from headrace.cli import output
from headrace.cli.main import app
from headrace.control.lag import LagReport, SinkLag
from headrace.control.registry import Registry
from headrace.control.verdicts import State
from headrace.model.errors import HeadraceError, StackError, UsageError
from tests.support.entries import source_entry

SINK = SinkLag("cache", "redis", "shop", State.STREAMING, "", "", {}, 0, 0)
REPORTS = [LagReport(n, False, (), (replace(SINK, reason=f"look {n}"),), ()) for n in range(3)]
LOST = StackError("Kafka does not answer.", code="KAFKA_UNREACHABLE", hint="headrace up")


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what has the looks of a watch see these, one after another, until Ctrl-C."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.setenv("HEADRACE_CONNECT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    with Registry(tmp_path / "registry.db").begin() as session:
        session.add(source_entry("shop", []))

    def have(*told: LagReport | HeadraceError) -> None:
        left: Iterator[LagReport | HeadraceError] = iter(told)
        looks = [len(told)]

        def measure(*_: object) -> LagReport:
            looks[0] -= 1
            if isinstance(found := next(left), HeadraceError):
                raise found
            return found

        def sleep(_: float) -> None:
            if not looks[0]:
                raise KeyboardInterrupt

        monkeypatch.setattr(lag_room, "measure", measure)
        monkeypatch.setattr("headrace.cli.lag.time.sleep", sleep)

    return have


@pytest.mark.parametrize("terminal", [False, True])
def test_each_look_is_printed_and_a_lost_answer_ends_nothing(
    look: Callable[..., None], terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(REPORTS[0], LOST, REPORTS[2])
    if terminal:
        for name, value in {"_force_terminal": True, "_width": 80, "_height": 25}.items():
            monkeypatch.setattr(output.out, name, value)
    done = CliRunner().invoke(app, ["lag", "--watch"])
    assert done.exit_code == 130
    first, second = done.stdout.index("look 0"), done.stdout.index("look 2")
    assert ("\x1b[2J" in done.stdout[first:second]) is terminal
    assert "KAFKA_UNREACHABLE" in done.stderr


def test_who_waits_goes_on_after_a_lost_answer(look: Callable[..., None]) -> None:
    look(LOST, LOST, replace(REPORTS[0], in_sync=True, in_sync_age_seconds=-1.0))
    done = CliRunner().invoke(app, ["lag", "--wait", "600", "--json"])
    assert done.exit_code == 0, done.stderr
    look(LOST)
    done = CliRunner().invoke(app, ["lag", "--wait", "0", "--json"])
    assert json.loads(done.stderr)["error"]["code"] == "KAFKA_UNREACHABLE"
    look(UsageError("There is none.", code="SOURCE_UNKNOWN", hint="headrace source list"), REPORTS[0])
    done = CliRunner().invoke(app, ["lag", "--wait", "600", "--json"])
    assert json.loads(done.stderr)["error"]["code"] == "SOURCE_UNKNOWN", "no waiting would help"


def test_json_has_a_line_for_each_look_and_ends_as_text_does(look: Callable[..., None]) -> None:
    look(REPORTS[0], LOST, REPORTS[2])
    done = CliRunner().invoke(app, ["lag", "--watch", "--json"])
    assert done.exit_code == 130
    assert [json.loads(line)["at_ms"] for line in done.stdout.splitlines()] == [0, 2]
    assert json.loads(done.stderr)["error"]["code"] == "KAFKA_UNREACHABLE"


def test_a_first_look_that_fails_ends_it_as_it_ends_any_command(look: Callable[..., None]) -> None:
    look(LOST)
    assert CliRunner().invoke(app, ["lag", "--watch"]).exit_code == 1


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_exit_code_says_whether_all_is_well(
    look: Callable[..., None], state: State, options: list[str]
) -> None:
    look(replace(REPORTS[0], sinks=(replace(SINK, state=state),)))
    done = CliRunner().invoke(app, ["lag", *options])
    assert state.value in done.stdout
    assert done.exit_code == (state in (State.DEGRADED, State.FAILED, State.RESYNC_REQUIRED))
