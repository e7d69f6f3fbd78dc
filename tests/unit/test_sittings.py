"""A part of the long tests goes on where it stopped, as long as nothing has changed; then it begins anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import sittings, tally
from tests.support.evidence import Run

pytest_plugins = ["pytester"]


def test_files_that_passed_are_not_run_again_at_the_same_commit(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    noted: list[Run] = []
    at = ["aaa"]
    monkeypatch.setattr(tally, "note", noted.append)
    monkeypatch.setattr(sittings, "DIRECTORY", tmp_path / "deep")
    monkeypatch.setattr(sittings, "commit", lambda: at[0])
    monkeypatch.setenv("HEADRACE_TEST_LEVEL", "deep-x")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.delenv(tally.CHOSEN, raising=False)
    monkeypatch.delenv(tally.FILE, raising=False)
    good = tmp_path / "good"
    pytester.makepyfile(
        test_a="def test_one(): pass\ndef test_two(): pass",
        test_b=f"import pathlib\ndef test_three(): assert pathlib.Path({str(good)!r}).exists()",
    )

    def sitting(**outcomes: int) -> tuple[str, list[str]]:
        done = pytester.runpytest_inprocess("-p", "tests.support.tally")
        done.assert_outcomes(**outcomes)
        return noted[-1].size, list(noted[-1].found)

    failed = "failed: `test_b.py::test_three`"
    assert sitting(passed=2, failed=1) == ("3 tests", [failed])
    assert noted[0].size == "2 tests, 1 not begun", "who is killed has run the first file"
    assert sitting(failed=1, deselected=2) == ("3 tests in 2 sittings", [failed, failed])
    good.touch()
    assert sitting(passed=1, deselected=2) == ("3 tests in 3 sittings", [failed, failed])
    assert noted[-1].seeds == "PYTHONHASHSEED=7, 7, 7"
    good.unlink()
    assert sitting(passed=2, failed=1) == ("3 tests", [failed])
    at[0] = "bbb"
    assert sitting(passed=2, failed=1) == ("3 tests", [failed])
    at[0] = "bbb+"
    assert sitting(passed=2, failed=1) == ("3 tests", [failed])
    assert sitting(passed=2, failed=1) == ("3 tests", [failed])
