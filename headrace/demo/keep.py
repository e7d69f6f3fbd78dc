"""What to try on a demo that was kept: one insert, and how it looks in three stores, with their own tools."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
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
    python, program = shlex.quote(sys.executable), _program()
    registry = Registry(context.registry)
    topics = {table.schema.table.name: table.topic for table in registry.source(SOURCE).tables}
    search, cache, lake = (registry.sink(name).tables[topics[_TABLE]] for name in SINKS)
    where = f" --home {shlex.quote(str(home))}" if home else ""
    key = str(cache["key_template"]).replace("{id}", str(_ID))
    document = str(search["id_template"]).replace("{id}", str(_ID))
    url = f"{endpoints.elasticsearch_url}/{search['alias']}/_doc/{document}?pretty&filter_path=_source"
    lag, down = f"{program} lag{where} --watch", f"{program} down{where}"
    cached = f"import redis; print(redis.from_url({_text(endpoints.redis_url)}).get({_text(key)}))"
    read = f'print(DeltaTable({_text(str(lake["path"]))}).to_pandas().query("id == {_ID}").T)'
    return [
        "",
        "The servers and the pipeline go on running. Insert a row, then look for it in all three stores:",
        f"  {program} psql{where} --source {SOURCE} {shlex.quote(_INSERT)}",
        f"  curl -s --noproxy '*' {shlex.quote(url)}",
        f"  {python} -c {shlex.quote(cached)}",
        f"  {python} -c {shlex.quote('from deltalake import DeltaTable; ' + read)}",
        f"`{lag}` shows how far behind each store is; `{down}` ends it.",
        "",
    ]


def _text(value: str) -> str:
    """Return a literal of Python without single quotes, which would have to be quoted in a shell's."""
    return json.dumps(value)


def _program() -> str:
    """Return what starts this installation's command in the shell at hand; it need not be on the path."""
    own = Path(sys.executable).with_name("headrace")
    found = shutil.which("headrace")
    if found and (not own.exists() or Path(found).resolve() == own.resolve()):
        return "headrace"
    return shlex.quote(str(own) if own.exists() else sys.argv[0])
