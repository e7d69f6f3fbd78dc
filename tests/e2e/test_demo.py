"""``headrace demo`` as a user runs it: kept, compared again, damaged, run anew, tidied up.

It belongs to `make deep`, for `.ci/run` itself runs a demo beside `make test`.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from elasticsearch import Elasticsearch
from redis import Redis

from headrace.cli.context import open_context
from headrace.control.registry import Registry
from headrace.demo import shop
from headrace.demo.stock import TABLES
from tests.support.patience import WAIT_S
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(600)]

KEYS = ["in_sync", "seconds_to_first_row", "rows", "changes", "latency_ms", "seconds", "peak_rss_mib"]
SINKS = {"search", "cache", "lake"}


def headrace(stack: RunningStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from headrace.cli.main import run; run()", *arguments]
    return subprocess.run(
        [*command, "--home", str(stack.home.root)], capture_output=True, text=True, timeout=500, check=False
    )


def last_line(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout, done.stderr
    value: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return value


def told(refused: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the command that a hint names, as it is printed; it names the home."""
    found = re.search(r"^hint: .*?\bheadrace ([^`;\n]+)", refused.stderr, re.MULTILINE)
    assert found is not None, refused.stderr
    return shlex.split(found[1])


@pytest.fixture(scope="module")
def kept(stack: RunningStack) -> Iterator[subprocess.CompletedProcess[str]]:
    small = ("--seconds", "6", "--scale", "0.1", "--rate", "100")
    absent = headrace(stack, "demo", "--check")
    assert "DEMO_ABSENT" in absent.stderr
    yield headrace(stack, *told(absent), *small)
    done = headrace(stack, "demo", *small, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(last_line(done)) == KEYS
    assert len(done.stdout.splitlines()) == 1
    assert_tidy(stack)


def assert_tidy(stack: RunningStack) -> None:
    """What the demo made is gone; the servers, which ran before, run on."""
    registry = Registry(open_context(stack.home.root).registry)
    assert not {entry.name for entry in registry.sources()} & {"shop"}
    assert not {entry.name for entry in registry.sinks()} & SINKS
    with psycopg.connect(stack.endpoints.postgres_dsn) as connection:
        names = {row[0] for row in connection.execute("SELECT datname FROM pg_database")}
        slots = {row[0] for row in connection.execute("SELECT slot_name FROM pg_replication_slots")}
    assert shop.DATABASE not in names
    assert not any(slot.removeprefix("headrace_") == "shop" for slot in slots)
    assert all(server.state == "running" for server in stack.stack.status() if server.name != "engine")


def test_the_last_line_says_it_all(kept: subprocess.CompletedProcess[str]) -> None:
    """Its time is that of the demo that this file shares: three stores filled from nothing."""
    assert kept.returncode == 0, kept.stdout + kept.stderr
    verdict = last_line(kept)
    assert list(verdict) == KEYS
    assert verdict["in_sync"] is True
    assert verdict["rows"].keys() == set(TABLES)
    assert verdict["changes"] > 300
    assert verdict["seconds_to_first_row"].keys() == verdict["latency_ms"].keys() == SINKS
    for measured in verdict["latency_ms"].values():
        assert 0 < measured["p50"] <= measured["p99"]
    assert 0 < max(verdict["seconds_to_first_row"].values()) < verdict["seconds"]
    assert 500 < verdict["peak_rss_mib"] < 5 * 1024


def test_a_kept_demo_goes_on_and_shows_an_insert(
    kept: subprocess.CompletedProcess[str], stack: RunningStack
) -> None:
    insert = "INSERT INTO categories (id, name, lineage) VALUES (4711, 'Water mills', '{4711}')"
    assert insert in kept.stdout.replace("'\"'\"'", "'")
    with psycopg.connect(shop.dsn_of(stack.endpoints.postgres_dsn)) as connection:
        connection.execute(insert)
    checked = headrace(stack, "demo", "--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert last_line(checked)["rows"]["categories"] == last_line(kept)["rows"]["categories"] + 1


def test_a_comparison_is_about_the_local_servers_whatever_the_environment_says_of_others(
    kept: subprocess.CompletedProcess[str], stack: RunningStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PGSSLMODE", "require"), ("PGHOSTADDR", "192.0.2.1")):
        monkeypatch.setenv(name, value)
    up = headrace(stack, "up")
    assert up.returncode == 0, up.stderr
    checked = headrace(stack, "demo", "--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_a_kept_demo_tells_to_try_can_be_pasted(
    kept: subprocess.CompletedProcess[str], stack: RunningStack
) -> None:
    """In the shell that the demo was started in the row is inserted, then seen by each store's own tool.

    The last but one line is about lag.
    """
    lines = kept.stdout.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.endswith("in all three stores:")) + 1
    insert, *looks = (line.strip() for line in lines[begin : begin + 4])

    def paste(line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    def shows(look: str) -> bool:
        return "Water mills" in paste(look)

    with psycopg.connect(shop.dsn_of(stack.endpoints.postgres_dsn)) as connection:
        connection.execute("DELETE FROM categories WHERE id = 4711")
    assert headrace(stack, "demo", "--check").returncode == 0
    paste(insert)
    for look in looks:
        until(partial(shows, look))
    lag, down = re.findall(r"`(\S*headrace [^`]+)`", lines[begin + 4])
    paste(lag.replace(" --watch", ""))
    assert shlex.split(down)[1:] == ["down", "--home", str(stack.home.root)]


def test_what_is_lost_comes_back_by_itself_and_every_other_damage_is_found_and_named(
    kept: subprocess.CompletedProcess[str], stack: RunningStack
) -> None:
    assert kept.returncode == 0, kept.stdout + kept.stderr
    context = open_context(stack.home.root)
    registry = Registry(context.registry)
    topics = {table.schema.table.name: table.topic for table in registry.source("shop").tables}
    search, cache, lake = (registry.sink(name).tables for name in ("search", "cache", "lake"))

    with Elasticsearch(stack.endpoints.elasticsearch_url) as client:
        categories = search[topics["categories"]]["alias"]
        client.delete(index=categories, id="2")
        customers = search[topics["customers"]]["alias"]
        client.update(index=customers, id="3", doc={"credit": "0.01"})
        stray = client.get(index=customers, id="4")["_source"] | {"id": 990_001}
        client.index(index=customers, id="990001", document=stray)
        until(lambda: client.exists(index=categories, id="2"))

    with Redis.from_url(stack.endpoints.redis_url) as client:
        template = cache[topics["categories"]]["key_template"]
        client.delete(template.replace("{id}", "5"))
        until(lambda: client.exists(template.replace("{id}", "5")))
        client.copy(template.replace("{id}", "6"), template.replace("{id}", "990002"))

    checked = headrace(stack, "demo", "--check")
    assert checked.returncode == 1, checked.stdout + checked.stderr
    report = last_line(checked)
    assert report["in_sync"] is False
    found = {(entry["store"], entry["table"]): entry["keys"] for entry in report["differences"]}
    assert found == {
        ("search", "customers"): {"missing": [], "extra": ["990001"], "different": {"3": ["credit"]}},
        # The copy lies where nobody looks for it, and is category 6 a second time.
        ("cache", "categories"): {
            "missing": [],
            "extra": found["cache", "categories"]["extra"],
            "different": found["cache", "categories"]["different"],
        },
    }
    copy = template.replace("{id}", "990002")
    doubled = found["cache", "categories"]
    assert copy in doubled["extra"] or doubled["different"] == {"6": ["@address"]}
    for text in ("extra: 990001", "different: 3 (credit)"):
        assert text in checked.stdout

    # What another writer does to the lake is noticed before anybody compares.
    path = Path(lake[topics["categories"]]["path"])
    table = DeltaTable(str(path)).to_pyarrow_table()
    name = pa.array([f"{text} (!)" if text == "Category 3" else text for text in table["name"].to_pylist()])
    changed = table.set_column(table.schema.get_field_index("name"), "name", name)
    write_deltalake(str(path), changed.cast(table.schema), mode="overwrite")
    told = headrace(stack, "demo", "--check")
    assert told.returncode != 0
    assert "Another writer" in told.stderr
    assert "public.categories" in told.stderr


def test_a_source_of_that_name_that_somebody_else_made_is_left_alone(
    kept: subprocess.CompletedProcess[str], stack: RunningStack
) -> None:
    """The second demo really begins, and has to find what is in its way by itself."""
    noted = stack.home.root / "demo.json"
    content = noted.read_text()
    noted.write_text("{}")
    try:
        refused = headrace(stack, "demo", "--seconds", "2", "--scale", "0.05")
    finally:
        noted.write_text(content)
    assert refused.returncode == 2
    assert "DEMO_NAME_TAKEN" in refused.stderr
    # A home of its own, and no other beside it.
    assert told(refused) == ["demo", "--home", "DIRECTORY"]
    assert Registry(open_context(stack.home.root).registry).source("shop")
