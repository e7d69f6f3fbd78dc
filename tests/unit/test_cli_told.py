"""What commands tell beside their result: logs, what waits, and the same keys of ``--json`` everywhere."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.base import Left
from headrace.cli import ask as asking
from headrace.cli import home as cli_home
from headrace.cli import remove as removal
from headrace.cli import sink as sink_room
from headrace.cli import stack as stack_room
from headrace.cli import tables as tables_room
from headrace.control import sink, source
from headrace.control.context import Context
from headrace.control.registry import Registry, SinkEntry
from headrace.demo.keep import next_steps
from headrace.demo.ownership import SINKS, SOURCE
from headrace.local.endpoints import Endpoints
from headrace.local.events import ServerStatus
from headrace.local.stack import Stack
from headrace.model.finding import Finding
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.cold_home import add, cold_home, told
from tests.support.entries import source_entry

ROOT = Path(__file__).parents[2]
FOUND = [Finding.warning("WAL_GROWS", "The log grows.")]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with a source and a sink, whose servers have never run."""
    root = cold_home(tmp_path / "home")
    add(root, "shop", "postgresql://me@db.example:5432/shop", sinks=("cache",))
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    return root


def said(*words: str, code: int = 0) -> Any:
    return json.loads(told(*words, "--json", code=code).stdout)


def test_status_tells_the_logs_of_what_has_died_or_does_not_answer(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {"postgres": "running", "kafka": "died", "connect": "unresponsive", "redis": "stopped"}
    servers = [
        ServerStatus(name, state, None, None, None, "", home / "my logs" / f"{name}.log", None)
        for name, state in states.items()
    ]
    monkeypatch.setattr(Stack, "status", lambda _: servers)
    lines = told("status", code=1).stdout.splitlines()
    logs = [line for line in lines if line.startswith("log of ")]
    assert logs == [f"log of {name}: '{home}/my logs/{name}.log'" for name in ("kafka", "connect")]


def test_up_tells_addresses_under_the_name_of_status(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = said("status")["endpoints"]
    monkeypatch.setattr(Stack, "up", lambda stack, *_, **__: stack.endpoints())
    monkeypatch.setattr(stack_room, "_start_engine", lambda _: False)
    up = said("up")
    assert (up["endpoints"], up["servers"]) == (known, {})
    assert up.items() >= known.items()


def test_findings_have_one_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "pause", lambda *_: FOUND)
    paused = said("source", "pause", "shop")
    assert paused["findings"] == paused["warnings"]
    assert [one["code"] for one in paused["findings"]] == ["WAL_GROWS"]
    monkeypatch.setattr(sink_room, "rotate_sink", lambda *_: None)
    assert said("sink", "rotate", "cache") == {
        "sink": "cache", "done": "uses its new credentials", "findings": []
    }  # fmt: skip
    monkeypatch.setattr(sink_room, "shown_secrets", lambda *_: FOUND)
    rotated = said("sink", "rotate", "cache")
    assert rotated["findings"] == rotated["warnings"] == paused["findings"]


def test_a_removal_always_tells_what_is_left(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(home, "depot", "postgresql://me@db.example:5432/depot")
    monkeypatch.setattr(removal, "remove_source", lambda *_, **__: Left())
    assert said("source", "remove", "depot") == {"source": "depot", "done": "removed", "left": []}


@pytest.mark.parametrize("purge", [False, True])
def test_whoever_takes_a_table_out_is_asked_for_its_topic_goes(
    purge: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(tables_room, "take_out", lambda _, name, *__, **___: done.append(name))
    monkeypatch.setattr(asking, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    words = ("source", "tables", "remove", "shop", "orders", *(["--purge"] if purge else []))
    asked = told(*words, code=1, answer="n\n").stderr
    assert "public.orders with their topic" in asked
    assert ("targets" in asked) == purge
    assert "Nothing was removed." in asked
    assert done == []
    told(*words, answer="y\n")
    assert "Go on?" not in told(*words, "--yes").stderr
    assert done == ["shop", "shop"]


def test_a_sink_that_was_added_tells_how_to_wait_until_it_is_filled(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Registry(home / "registry.db").sink("cache")
    monkeypatch.setattr(sink, "add", lambda *_, **__: (entry, []))
    words = ("sink", "add", "cache", "--kind", "redis", "--url", "redis://h")
    assert "`headrace lag --wait 600` returns once every store shows every row" in told(*words).stdout
    text = " ".join(re.sub(r"[│\s]+", " ", told("sink", "add", "--help").stdout).split())
    assert "both wait until it has passed that" in text


def test_the_help_of_a_resnapshot_shows_its_main_form() -> None:
    text = told("resnapshot", "--help").stdout
    assert "SOURCE [TABLE…] | COMMAND [ARGS]…" in text
    assert "headrace resnapshot shop public.orders" in text


@pytest.fixture
def kept(home: Path, context: Context) -> list[str]:
    """Return what a kept demo tells to try."""
    schema = TableSchema(TableId("public", "categories"), (Column("id", LogicalType.INT32),), ("id",))
    facts = {"key_template": "shop:{id}", "id_template": "{id}", "alias": "shop-categories", "path": "/l"}
    with Registry(context.registry).begin() as session:
        session.add(source_entry(SOURCE, [schema]))
        session.flush()
        for name in SINKS:
            session.add(
                SinkEntry(
                    name=name, kind="redis", source=SOURCE, settings={}, incomplete={}, incomplete_ms={},
                    tables={f"{SOURCE}.public.categories": facts}, on_schema_change="lenient", created_ms=1,
                )
            )  # fmt: skip
    known: dict[str, Any] = {name: f"{name}://h" for name in Endpoints.__dataclass_fields__}
    return next_steps(context, Endpoints(**known), home)


def test_what_a_kept_demo_proposes_starts_in_the_shell_it_was_started_in(
    home: Path, context: Context, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # as `make demo` has it: nothing is activated
    assert shutil.which("headrace") is None
    lines = request.getfixturevalue("kept")
    proposed = [shlex.split(line)[0] for line in lines if line.startswith("  ")]
    own = str(Path(sys.executable).with_name("headrace"))
    assert proposed == [own, "curl", sys.executable, sys.executable]
    (cached,) = (line for line in lines if "redis" in line)
    assert 'redis.from_url("redis_url://h").get("shop:4711")' in cached
    for line in (line for line in lines if sys.executable in line):
        code = shlex.split(line)[2]
        subprocess.run([sys.executable, "-c", code.rpartition("; print")[0]], check=True)
    assert f"`{own} lag --home {home} --watch`" in lines[-2]


def test_a_command_on_the_path_is_proposed_by_its_name(
    home: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    lines = request.getfixturevalue("kept")
    assert any(line.startswith("  headrace psql ") for line in lines)


def test_the_folder_of_secrets_is_made_once_its_place_is_known_and_before_docker_starts() -> None:
    head = (ROOT / "docker-compose.yml").read_text().partition("\nname:")[0]
    steps = ("env.example .env", ". ./.env", 'mkdir -p "$HEADRACE_HOME/secrets"', "docker compose up")
    places = [head.index(step) for step in steps]
    assert places == sorted(places)
    example = (ROOT / "deploy" / "compose" / "env.example").read_text()
    first = re.findall(r"^(\w+)=", example, re.MULTILINE)[:3]
    assert first == ["POSTGRES_PASSWORD", "HEADRACE_HOME", "HEADRACE_UID"]
    assert "first three settings" in head
