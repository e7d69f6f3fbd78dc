"""Each code that `source add` or `sink add` is refused with is known to its check, or has a reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.foretold import LATER

ROOT = Path(__file__).parents[2]
CHECKED = {
    "source": ("connectors/postgres", "connectors/registry.py", "headrace/control/source_check.py"),
    "sink": ("sinks/elasticsearch", "sinks/redis", "sinks/delta", "headrace/control/sink_check.py"),
}
"""Where a check gets what it says from."""
SHARED = (
    "headrace/control/fitness.py",
    "headrace/control/connect.py",
    "headrace/control/kafka.py",
    "headrace/control/targets.py",
    "headrace/control/claims.py",
    "headrace/control/sink_settings.py",
    "headrace/config/source.py",
    "sinks/registry.py",
)
"""What a check and its command call alike."""
COMMANDS = {
    "source": ("source.py", "streaming.py", "first_load.py", "lost.py", "epochs.py", "capture.py"),
    "sink": ("sink.py", "pipelines.py", "sweeps.py", "progress.py", "runner.py", "remake.py"),
}
OTHERS = {
    "CONNECTOR_NOT_RUNNING": "source resume",
    "SOURCE_IN_USE": "source remove",
    "SOURCE_NOT_STREAMING": "resnapshot",
    "SINK_BUSY": "sink remove, sink resume",
    "SOURCE_SECRET_LOST": "commands upon a source that was added",
    "TABLE_NOT_CAPTURED": "found by the check, which calls the same function",
    "SINK_EXISTS": "found by the check, which calls the same function",
}
"""Codes in these files that other commands are refused with, or that the check finds by calling them."""


def codes(*places: str) -> set[str]:
    """Return the codes that are given to an error in some files and folders."""
    files = [
        file
        for place in places
        for file in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))
    ]
    return {
        str(keyword.value.value)
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
    }


@pytest.mark.parametrize("command", ["source", "sink"])
def test_every_code_is_known_to_the_check_or_cannot_be_known(command: str) -> None:
    own = codes(*(f"headrace/control/{name}" for name in COMMANDS[command]))
    assert own, "the walk finds nothing"
    known = codes(*CHECKED[command], *SHARED)
    assert own - known - set(LATER) - set(OTHERS) == set()


def test_no_reason_outlives_its_code() -> None:
    every = codes("headrace", "connectors", "sinks")
    assert set(LATER) <= every
    assert set(OTHERS) <= every
