"""The tests that pages name as proof are there, and are run; the catalogue's count is that of its rows."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "docs" / f"{name}.md"
    for name in ("guarantees", "catalogue", "counterexamples", "evidence", "lifecycle", "remedies")
]
CATALOGUE = (
    *(f"K{n}" for n in range(1, 14)),
    *(f"B{n}" for n in range(1, 11)),
    *(f"P{n}" for n in range(1, 17)),
    *(f"S{n}" for n in range(1, 16)),
    *(f"O{n}" for n in range(1, 8)),
    *(f"D{n}" for n in range(1, 15)),
    *(f"R{n}" for n in range(1, 8)),
    *(f"X{n}" for n in range(1, 8)),
    *(f"G{n}" for n in range(1, 10)),
)


def functions() -> set[str]:
    """Return the names of all tests."""
    return {name for name in suites() if not name.endswith(".py")}


@cache
def files() -> set[str]:
    return {path.name for folder in ("tests", "sinks/contract") for path in (ROOT / folder).rglob("*.py")}


@cache
def suites() -> dict[str, set[str]]:
    """Return test, or name of its file → the targets that run it."""
    found: dict[str, set[str]] = {}
    for folder in ("tests", "sinks/contract"):
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            marks = [ast.unparse(item) for item in tree.body if isinstance(item, ast.Assign)]
            whole = any(mark.startswith("pytestmark") and "mark.deep" in mark for mark in marks)
            for item in ast.walk(tree):
                if isinstance(item, ast.FunctionDef) and item.name.startswith("test_"):
                    deep = whole or any("mark.deep" in ast.unparse(mark) for mark in item.decorator_list)
                    for name in (item.name, path.name):
                        found.setdefault(name, set()).add("make deep" if deep else "make test")
    return found


def named(text: str) -> Counter[str]:
    """Return the tests that a text names."""
    return Counter(re.findall(r"`(test_\w+)(?:\[[^`]*\])?`", text))


def rows() -> dict[str, str]:
    """Return the catalogue: entry → its last column."""
    text = (ROOT / "docs/catalogue.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| ([A-Z]\d+) \|.*\|.*\| (.*) \|$", text, re.MULTILINE)
    assert len(dict(lines)) == len(lines), "an entry is there twice"
    return dict(lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_as_proof_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not sorted(set(named(text)) - functions())
    assert not [
        path for path in re.findall(r"`((?:tests|sinks)/[\w/.]+)`", text) if not (ROOT / path).exists()
    ]
    assert not sorted(set(re.findall(r"`(test_\w+\.py)`", text)) - files())


def test_every_entry_of_the_catalogue_is_there_in_its_order() -> None:
    assert tuple(rows()) == CATALOGUE
    assert len(CATALOGUE) == 98


@pytest.mark.parametrize("entry", CATALOGUE)
def test_what_counts_as_shown_names_a_test(entry: str) -> None:
    shown = rows()[entry]
    if shown.startswith("**open**"):
        return
    tests = named(shown)
    assert tests, "no test is named"


def test_the_catalogue_counts_its_rows() -> None:
    words = Counter(
        "open" if shown.startswith("**open**") else "in part" if shown.startswith("**in part**") else "shown"
        for shown in rows().values()
    )
    counted = f"| {words['shown']} | {words['in part']} | {words['open']} | {len(rows())} |"
    assert counted in (ROOT / "docs/catalogue.md").read_text(encoding="utf-8"), counted


def counter_examples() -> dict[str, list[str]]:
    """Return the table of counter-examples: ids → its other columns."""
    text = (ROOT / "docs/counterexamples.md").read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.count(" | ") == 5]
    return {cells[0]: cells[1:] for cells in lines if re.match(r"[A-Z]\d", cells[0])}


@pytest.mark.parametrize("entry", counter_examples())
def test_a_counter_example_names_the_suite_that_shows_it(entry: str) -> None:
    _, now, test, _, seen = counter_examples()[entry]
    assert_seen_by(f"{now} {test}", seen)


def assert_seen_by(told: str, seen: str) -> None:
    names = re.findall(r"`(?:[\w/]+/)?(test_\w+(?:\.py)?)`", told)
    assert names, "no test is named"
    assert set(re.findall(r"`(make \w+)`", seen)) == set().union(*(suites()[name] for name in names))


def reported() -> dict[str, list[str]]:
    """Return the table of faults of other tools: ids → its columns."""
    text = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| P\d+: ", line)]
    found = {cells[0].partition(":")[0]: cells for cells in lines}
    assert len(found) == 16
    return found


@pytest.mark.parametrize("entry", reported())
def test_a_reported_fault_names_the_suite_that_shows_it(entry: str) -> None:
    _, now, test, seen, _ = reported()[entry]
    assert_seen_by(f"{now} {test}", seen)


def test_the_commits_of_the_counter_examples_are_of_this_history() -> None:
    asked = ["git", "rev-list", "--abbrev-commit", "--abbrev=7", "HEAD"]
    known = set(subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())
    named_there = {commit for cells in counter_examples().values() for commit in cells[3].split(", ")}
    assert named_there
    assert not named_there - {commit[:7] for commit in known}
