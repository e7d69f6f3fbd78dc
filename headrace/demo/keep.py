"""What to try on a demo that was kept: one insert, and how it looks in three stores, with their own tools."""

from __future__ import annotations

import shlex
from pathlib import Path

from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.demo.ownership import SINKS, SOURCE
from headrace.local.endpoints import Endpoints

__all__ = ["next_steps"]

_TABLE = "categories"
_ID = 4711
_INSERT = "INSERT INTO categories (id, name, lineage) VALUES (4711, 'Water mills', '{4711}')"


def next_steps(context: Context, endpoints: Endpoints, home: Path | None) -> list[str]:
    """Return lines to print: an insert for Postgres, then one command per store that shows the row."""
    registry = Registry(context.registry)
    topics = {table.schema.table.name: table.topic for table in registry.source(SOURCE).tables}
    search, cache, lake = (registry.sink(name).tables[topics[_TABLE]] for name in SINKS)
    where = f" --home {shlex.quote(str(home))}" if home else ""
    key = str(cache["key_template"]).replace("{id}", str(_ID))
    document = str(search["id_template"]).replace("{id}", str(_ID))
    url = f"{endpoints.elasticsearch_url}/{search['alias']}/_doc/{document}?pretty&filter_path=_source"
    read = f"print(DeltaTable({str(lake['path'])!r}).to_pandas().query('id == {_ID}').T)"
    return [
        "",
        "The servers and the pipeline go on running. Insert a row, then look for it in all three stores:",
        f"  headrace psql{where} --source {SOURCE} {shlex.quote(_INSERT)}",
        f"  curl -s {shlex.quote(url)}",
        f"  redis-cli -u {endpoints.redis_url} GET {shlex.quote(key)}",
        f"  python -c {shlex.quote('from deltalake import DeltaTable; ' + read)}",
        f"`headrace lag{where} --watch` shows how far behind each store is; `headrace down{where}` ends it.",
        "",
    ]
