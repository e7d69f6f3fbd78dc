"""A check of rights asks for every command that the sink sends, from Python and from its scripts."""

from __future__ import annotations

import re
from pathlib import Path

import sinks.redis
from sinks.redis.rights import COMMANDS

SENT = re.compile(r"(?:redis|asked|pipeline)\.([a-z_]+)\(|\b(?:call|try|pcall)\('([A-Z]+)'|b\"([A-Z]{4,})\"")
"""A method of the client, a command of a script, a word that is packed."""
NO_COMMAND = {"CALL", "PCALL", "PIPELINE", "EXECUTE", "CLOSE", "PACK_COMMAND"}
NAMES = {"DELETE": "DEL", "SCAN_ITER": "SCAN", "HSCAN_ITER": "HSCAN"}


def test_every_command_is_asked_for() -> None:
    files = sorted(Path(sinks.redis.__file__).parent.glob("*.py"))
    found = {
        next(filter(None, groups)).upper() for file in files for groups in SENT.findall(file.read_text())
    }
    sent = {NAMES.get(name, name) for name in found - NO_COMMAND}
    assert sent == {command.partition(" ")[0] for command in COMMANDS}
