"""Each code that `source add` or `sink add` is refused with is known to its check, or has a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.foretold import LATER

ROOT = Path(__file__).parents[2]
POSTGRES = "connectors/postgres"
ASKED = ("address.py", "catalogue.py", "granted.py", "properties.py")
"""Modules of the connector that refuse a check as they refuse the command, for it calls them, too."""
WORKS = (
    "lookup.py",
    "patience.py",
    "pooler.py",
    "pulse.py",
    "reread.py",
    "session.py",
    "setup.py",
    "watch.py",
)
"""Those that open sessions, set up, read or watch: what they refuse a check has to say by other means."""
CHECKED = {
    "source": ("connectors/registry.py", "headrace/control/source_check.py"),
    "sink": ("sinks/elasticsearch", "sinks/redis", "sinks/delta", "headrace/control/sink_check.py"),
    "tables": ("headrace/control/tables_check.py",),
}
"""Where a check gets what it says from, beside the database."""
SHARED = (
    "headrace/control/fitness.py",
    "headrace/control/connect.py",
    "headrace/control/kafka.py",
    "headrace/control/claims.py",
    "headrace/control/sink_settings.py",
    "headrace/config/source.py",
    "sinks/registry.py",
)
"""What a check and its command call alike."""
COMMANDS = {
    "source": (
        "source.py",
        "adding.py",
        "streaming.py",
        "first_load.py",
        "failover.py",
        "lost.py",
        "epochs.py",
        "capture.py",
    ),
    "sink": ("sink.py", "adding.py", "pipelines.py", "sweeps.py", "progress.py", "runner.py", "remake.py"),
    "tables": ("tables.py", "gap.py", "targets.py", "runs/start.py", "runs/chosen.py"),
}
BY_OTHER_CODES = {
    "SOURCE_DENIED": (
        "SOURCE_CREATE_RIGHT",
        "SOURCE_SCHEMA_RIGHT",
        "SOURCE_SELECT_RIGHT",
        "SOURCE_TABLE_OWNER",
        "SOURCE_OBJECT_OWNER",
        "SOURCE_EVENT_TRIGGER",
    ),
    "SOURCE_REFUSED": (
        "SOURCE_STANDBY",
        "SOURCE_EVENT_TRIGGER",
        "SOURCE_TABLE_KIND",
        "SOURCE_TABLE_UNLOGGED",
    ),
}
"""What a statement is refused with → the errors by which a check says it before the statement is run."""
SAME = "found by the check, which calls the same function"
SESSION = "found by the check, which opens the same session"
OTHERS = {
    "CONNECTOR_NOT_RUNNING": "source resume",
    "SOURCE_IN_USE": "source remove",
    "SOURCE_NOT_STREAMING": "resnapshot",
    "SINK_BUSY": "sink remove, sink resume",
    "SINK_LACKS_TABLE": "resnapshot",
    "SOURCE_SECRET_LOST": "commands upon a source that was added",
    "SOURCE_LOOKUP": "the engine",
    "RESNAPSHOT_UNREADABLE": "resnapshot; of a new table the check warns (SOURCE_TABLE_REREAD)",
    "RESNAPSHOT_PARTITIONS": "resnapshot: a topic that somebody has altered",
    "SOURCE_EXISTS": SAME,
    "SOURCE_GAP": SAME,
    "SOURCE_SLOT_TAKEN": SAME,
    "TABLE_NOT_CAPTURED": SAME,
    "SINK_EXISTS": SAME,
    "SINK_OF_OTHER_SOURCE": SAME,
    "SINK_TARGET_TAKEN": SAME,
    "SINK_TARGET_AHEAD": f"{SAME}; of a new table nobody knows its life before its topic is made",
    "SOURCE_POOLED": SESSION,
    "SOURCE_UNREACHABLE": SESSION,
    "SOURCE_VERSION": SESSION,
}
"""Codes in these files that other commands are refused with, or that the check finds by calling them."""


def files(*places: str) -> Iterator[Path]:
    for place in places:
        yield from [ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py")


def calls(file: Path) -> Iterator[ast.Call]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def codes(*places: str) -> set[str]:
    """Return the codes that are given to an error in some files and folders."""
    return {
        str(keyword.value.value)
        for file in files(*places)
        for call in calls(file)
        for keyword in call.keywords
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
    }


def found(*places: str) -> set[str]:
    """Return the codes of errors that checks find in some files and folders."""
    told = set[str]()
    for call in (call for file in files(*places) for call in calls(file)):
        made = isinstance(call.func, ast.Name) and call.func.id == "Finding"  # its severity comes first
        words = call.args[1:2] if made else call.args[:1]
        if made or (isinstance(call.func, ast.Attribute) and call.func.attr == "error"):
            told |= {str(word.value) for word in words if isinstance(word, ast.Constant)}
    return told


def of_postgres(modules: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{POSTGRES}/{module}" for module in modules)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_code_is_known_to_the_check_or_cannot_be_known(command: str) -> None:
    own = codes(*(f"headrace/control/{name}" for name in COMMANDS[command]))
    assert own, "the walk finds nothing"
    known = codes(*CHECKED[command], *SHARED) | found(*CHECKED[command])
    if command != "sink":
        own |= codes(*of_postgres(WORKS))
        known |= codes(*of_postgres(ASKED)) | found(POSTGRES)
    assert own - known - set(LATER) - set(OTHERS) - set(BY_OTHER_CODES) == set()


def test_no_check_is_taken_for_one_that_says_what_a_session_refuses() -> None:
    """A module that refuses something is one that a check calls, or it is not."""
    raising = {path.name for path in files(POSTGRES) if codes(str(path.relative_to(ROOT)))}
    assert raising == {*ASKED, *WORKS}
    said = codes(*of_postgres(ASKED)) | found(POSTGRES)
    assert {code for others in BY_OTHER_CODES.values() for code in others} <= said


def test_no_reason_outlives_its_code() -> None:
    every = codes("headrace", "connectors", "sinks")
    assert set(LATER) <= every
    assert set(OTHERS) <= every
    assert set(BY_OTHER_CODES) <= every
