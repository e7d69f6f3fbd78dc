"""What our statements ask of a server's catalogue stands in the lists of what a role needs for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from connectors.postgres.granted import NEEDED, USEFUL
from tests.unit.test_hints import ROOT

ASKED = re.compile(
    r"\b(?:FROM|JOIN)\s+(?:pg_catalog\.)?(pg_\w+)|\b(pg_\w+|has_\w+_privilege|current_setting|set_config)\("
)
TOLD_TO_PEOPLE = {"pg_proc", "pg_reload_conf"}
"""Of hints; and what is asked to find out what is lacking."""
ONLY_IF_GRANTED = {"pg_file_settings", "pg_show_all_file_settings"}
"""Few roles may ask for these; nothing is said of it."""


def asked() -> Iterator[tuple[str, str]]:
    """Yield the names that statements in the connector ask, and where."""
    for path in sorted((ROOT / "connectors" / "postgres").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for table, function in ASKED.findall(node.value):
                    yield table or function, path.name


def test_nothing_is_asked_that_no_check_asks_for() -> None:
    known = {*NEEDED, *USEFUL, *TOLD_TO_PEOPLE, *ONLY_IF_GRANTED}
    found = list(asked())
    assert len(found) > 100
    assert not [(name, where) for name, where in found if name not in known]
