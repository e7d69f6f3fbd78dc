"""Runs of what is run by hand note themselves, each in the place of the last one of its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import tally
from tests.support.evidence import PAGE, Run, note


def test_a_run_takes_the_place_of_the_last_one_of_its_name(tmp_path: Path) -> None:
    page = tmp_path / "evidence.md"
    before = PAGE.read_text(encoding="utf-8")
    page.write_text(before, encoding="utf-8")
    note(Run("make one", "5", 61.6, "3 tests", ["failed: `a|b`"]), page)
    note(Run("make two", "6", 1_000, "4 tests", []), page)
    note(Run("make one", "7", 2, "3 tests", []), page)
    text = page.read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("| make one |")]
    assert line.endswith("| 7 | 2 | 3 tests | nothing |")
    assert "| 6 | 1,000 | 4 tests | nothing |" in text
    for seeds, found in (("1 to 2", ["a"]), ("3", []), ("1 to 2", [])):
        note(Run("make three", seeds, 2, "storms", found, kept=True), page)
    told = [line for line in page.read_text(encoding="utf-8").splitlines() if "| make three |" in line]
    assert [line.split("|")[4:8:3] for line in told] == [[" 1 to 2 ", " nothing "], [" 3 ", " nothing "]]
    assert [line for line in text.splitlines() if not line.startswith("| make")] == [
        line for line in before.splitlines() if not line.startswith("| make")
    ]
    assert {line for line in before.splitlines() if line.startswith("| make")} <= set(text.splitlines())


@pytest.mark.parametrize(("repeats", "code"), [((1, 2), 0), ((2, 2), 1), ((4, 0), 1)])
def test_more_than_three_repeats_of_all_runs_together_fail_the_check(
    tmp_path: Path, repeats: tuple[int, int], code: int
) -> None:
    lines = [{"level": "unit", "repeats": [f"test_{n}" for n in range(count)]} for count in repeats]
    file = tmp_path / "tally"
    file.write_text(
        "".join(json.dumps(line) + "\n" for line in [{"phase": "make lint", "seconds": 1}, *lines])
    )
    assert tally._main("--few", str(file)) == code
