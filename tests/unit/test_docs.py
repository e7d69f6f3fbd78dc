"""Pages that are written from the code, and names that pages use, are current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from headrace.cli.main import app
from tests.golden.page import page as types_page

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_page_of_types_is_current() -> None:
    assert (ROOT / "docs/types.md").read_text(encoding="utf-8") == types_page(), "run `make docs`"


def test_the_command_page_is_current() -> None:
    command = [sys.executable, "-m", "typer", "headrace.cli.main", "utils", "docs", "--name", "headrace"]
    page = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "NO_COLOR": "1"}
    ).stdout
    assert (ROOT / "docs/cli.md").read_text(encoding="utf-8").strip() == page.strip(), "run `make docs`"


def test_every_command_and_option_says_what_it_is_for() -> None:
    silent = []

    def look(command: object, path: str) -> None:
        if not getattr(command, "help", None):
            silent.append(path)
        silent.extend(
            f"{path} {parameter.opts[0]}"
            for parameter in getattr(command, "params", [])
            if not parameter.help
        )
        for name, child in getattr(command, "commands", {}).items():
            look(child, f"{path} {name}")

    look(get_command(app), "headrace")
    assert not silent


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_project_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_that_a_page_names_exist(page: Path) -> None:
    made = re.findall(r"^([a-z0-9 -]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    targets = {word for words in made for word in words.split()}
    named = re.findall(r"(?:`|^|\$ )make ([a-z][a-z0-9 -]*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert not {word for words in named for word in words.split()} - targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_a_page_names_exist(page: Path) -> None:
    root = get_command(app)
    for line in re.findall(
        r"(?:`|^|^\$ )headrace ([a-z][a-z ]*)", page.read_text(encoding="utf-8"), re.MULTILINE
    ):
        command: object = root
        for word in line.split():
            children = getattr(command, "commands", {})
            if not children:
                break
            if word not in children and "start" in children:
                break  # the name of a source: `start` may be left out
            assert word in children, f"there is no “headrace {line.strip()}”"
            command = children[word]
