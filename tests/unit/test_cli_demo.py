"""``headrace demo``: where its report goes is tried before it begins, and its verdict is never lost."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app

VERDICT = {"in_sync": True}


class _Verdict:
    in_sync = True

    def line(self) -> dict[str, Any]:
        return VERDICT

    def details(self) -> dict[str, Any]:
        return {**VERDICT, "more": 1}


@pytest.fixture
def demos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have the demo do nothing; return what it was asked for."""
    asked: list[str] = []

    class Demo:
        booted = None

        def __init__(self, *_: object) -> None:
            """Take what the true one takes."""

        def run(self) -> _Verdict:
            asked.append("demo")
            return _Verdict()

    def check(*_: object) -> list[Any]:
        asked.append("check")
        return []

    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("headrace.demo.run.Demo", Demo)
    monkeypatch.setattr("headrace.demo.check.check", check)
    return asked


def refused(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["demo", *words, "--json"])
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    error: dict[str, Any] = json.loads(done.stderr)["error"]
    return error


def test_a_report_that_cannot_be_written_is_told_before_anything_is_done(
    demos: list[str], tmp_path: Path
) -> None:
    for place in (tmp_path / "no" / "r.json", tmp_path):
        told = refused("--report", str(place))
        assert (told["code"], str(place) in told["message"]) == ("DEMO_REPORT_UNWRITABLE", True)
    assert demos == []


def test_a_comparison_alone_has_no_report(demos: list[str], tmp_path: Path) -> None:
    told = refused("--check", "--report", str(tmp_path / "r.json"))
    assert (told["code"], demos) == ("DEMO_CHECK_OR_REPORT", [])
    assert CliRunner().invoke(app, shlex.split(told["hint"])[1:]).exit_code == 0
    assert demos == ["check"]


def test_the_verdict_is_told_also_when_the_report_fails(
    demos: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "r.json"
    report.write_text("of before")
    assert CliRunner().invoke(app, ["demo", "--report", str(report)]).exit_code == 0
    assert json.loads(report.read_text()) == _Verdict().details()

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device", str(report))

    monkeypatch.setattr(Path, "write_text", full)
    done = CliRunner().invoke(app, ["demo", "--report", str(report), "--json"])
    assert json.loads(done.stdout) == VERDICT
    assert json.loads(done.stderr)["error"]["code"] == "DEMO_REPORT_UNWRITABLE"
    assert done.exit_code != 0


def test_what_is_tried_leaves_no_report_behind(
    demos: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "r.json"

    def interrupted(_: object) -> None:
        assert not report.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("headrace.demo.run.Demo.run", interrupted)
    assert CliRunner().invoke(app, ["demo", "--report", str(report)]).exit_code == 130
    assert not report.exists()
