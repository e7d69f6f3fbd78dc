"""Names of others in commands and in comments of SQL."""

from __future__ import annotations

import subprocess

import pytest

from headrace.control.remedies import take_in
from headrace.model.pasted import command, remark, word
from headrace.model.schema import TableId
from tests.unit.test_hints import ROOT

NAMES = (
    "public.plain",
    "public.two words",
    "it's",
    "a\nb",
    "a\\nb\n'c'\t$HOME `id` \"d\" \x7f",
    "line\u2028end\x85",
    "",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_word_reaches_the_program_as_it_is_and_holds_no_line_end(name: str) -> None:
    assert len(word(name).splitlines()) == 1
    said = subprocess.run(["bash", "-c", command("printf", "%s", name)], capture_output=True, check=True)
    assert said.stdout.decode() == name


@pytest.mark.parametrize("name", NAMES)
def test_a_remark_does_not_end_its_line(name: str) -> None:
    assert len(remark(name).splitlines()) <= 1


def test_every_command_that_is_told_is_made_so() -> None:
    assert len(take_in("shop", [TableId("public", NAMES[3])]).splitlines()) == 1
    packages = ("connectors", "headrace/control", "sinks", "spark_jobs")
    sources = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    assert [path.name for path in sources if "shlex" in path.read_text(encoding="utf-8")] == []
