"""An installation whose servers have never run: what the command line says of it by its registry alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.control.registry import Registry, SinkEntry
from headrace.local.credentials import Credentials
from headrace.local.home import Home
from headrace.local.ports import PORT_NAMES
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry

__all__ = ["add", "cold_home", "told"]

TABLES = [
    TableSchema(TableId("public", name), (Column("id", LogicalType.INT32),), ("id",))
    for name in ("goods", "orders", "people")
]


def cold_home(root: Path) -> Path:
    """Return a home with ports and credentials and nothing registered."""
    Home(root).create()
    Home(root).ports_file.write_text(json.dumps({name: 1 + n for n, name in enumerate(PORT_NAMES)}))
    Credentials.load_or_make(root)
    return root


def add(root: Path, name: str, address: str, sinks: tuple[str, ...] = ()) -> None:
    """Register a source of three tables, and sinks of two of them."""
    with Registry(root / "registry.db").begin() as session:
        session.add(source_entry(name, TABLES, address=address))
    for sink in sinks:
        with Registry(root / "registry.db").begin() as session:
            held = {f"{name}.{table.table}": {"prefix": table.table.name} for table in TABLES[:2]}
            session.add(
                SinkEntry(
                    name=sink, kind="redis", source=name, settings={}, tables=held, incomplete={},
                    incomplete_ms={}, on_schema_change="lenient", created_ms=1,
                )
            )  # fmt: skip


def told(*words: str, code: int = 0, answer: str = "") -> Any:
    """Return what a command prints; fail when it ends with another code."""
    result = CliRunner().invoke(app, words, input=answer)
    assert result.exit_code == code, result.output
    return result
