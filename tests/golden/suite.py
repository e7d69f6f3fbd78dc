"""What is recorded of the real connector, and where each record is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.golden import cases, extensions

__all__ = ["BUILT_IN", "EXTENSIONS", "SUITES", "Suite"]

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Suite:
    """Values of types that one database has.

    Args:
        setup: Statements that make the types.
        cases: SQL type → literals of it.
        large: SQL type → a value so large that an update of another column leaves it out of the log.
        records: Where what the connector said of them is written.
    """

    setup: tuple[str, ...]
    cases: Mapping[str, tuple[str, ...]]
    large: Mapping[str, str]
    records: Path


BUILT_IN = Suite(cases.SETUP, cases.CASES, cases.LARGE, _HERE / "types.jsonl")
"""Types of Postgres itself and of what it brings along, which the local stack has."""

EXTENSIONS = Suite(extensions.SETUP, extensions.CASES, extensions.LARGE, _HERE / "extensions.jsonl")
"""Types of pgvector and PostGIS, for which a database that has them has to be named."""

SUITES = (BUILT_IN, EXTENSIONS)
