"""What a command or a sink says with a code is carried out as it is printed; then all is well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from headrace.config.pipeline import SchemaPolicy, load_pipeline
from headrace.config.source import SourceSettings
from headrace.control import deadletters, lag, sink, source
from headrace.control.deadletters import Chosen
from headrace.control.opened import opened_sink
from headrace.control.pipelines import rewrite, spec_path
from headrace.control.progress import read_progress
from headrace.control.registry import Registry
from headrace.control.runner import engine_state
from headrace.control.verdicts import standing
from tests.support.mirror import Mirror, mirrored
from tests.support.patience import WAIT_S
from tests.support.remedy import carry_out, refused
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("honest"),
]

NAME, CACHE, SEARCH = "codes", "codescache", "codessearch"


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        NAME,
        "CREATE TABLE notes (id int PRIMARY KEY, v text)",
        "INSERT INTO notes SELECT i, 'v' || i FROM generate_series(1, 30) i",
        policies={"search": SchemaPolicy.IGNORE},
    ) as made:
        made.settle()
        yield made


@pytest.fixture
def redis(stack: RunningStack) -> Iterator[Any]:
    with Redis.from_url(stack.endpoints.redis_url) as client:
        yield client


def assert_equal(mirror: Mirror) -> None:
    mirror.settle()
    wanted = {str(key): value for key, value in mirror.database.run("SELECT id, v FROM notes")}
    for name, rows in mirror.stored("notes").items():
        assert {key: row["v"] for key, row in rows.items()} == wanted, name


def done(mirror: Mirror, remedy: str) -> str:
    return carry_out(remedy, mirror.stack.home.root, mirror.database.run)


def set_aside(mirror: Mirror, redis: Any, row: int) -> int:
    """Have the cache refuse a row; return the number of its letter."""
    redis.lpush(f"{NAME}:notes:{row}", "a stranger's")
    mirror.database.run(f"INSERT INTO notes VALUES ({row}, 'set aside')")
    until(lambda: len(deadletters.letters(mirror.context, Chosen(sink=CACHE))) == 1)
    return deadletters.letters(mirror.context, Chosen(sink=CACHE))[0].number


def test_the_remedy_of_a_letter_that_is_unknown(mirror: Mirror, redis: Any) -> None:
    number = set_aside(mirror, redis, 50)
    told = refused(mirror.stack.home.root, "dlq", "show", "999999")
    assert told["code"] == "LETTER_UNKNOWN"
    assert str(number) in done(mirror, told["hint"])
    assert "set aside" in done(mirror, f"headrace dlq show {number}")
    redis.delete(f"{NAME}:notes:50")
    done(mirror, f"headrace dlq replay {number}")
    assert_equal(mirror)


def test_the_remedy_of_a_letter_whose_file_is_gone(mirror: Mirror, redis: Any) -> None:
    assert_equal(mirror)
    number = set_aside(mirror, redis, 60)
    entry, _ = deadletters.letter(mirror.context, number)
    (mirror.context.dead_letters / CACHE / entry.file).unlink()
    redis.delete(f"{NAME}:notes:60")
    again = deadletters.replay(mirror.context, Chosen(numbers=(number,)))
    assert (again.letters, again.refused) == (0, {"LETTER_GONE": 1})
    told = refused(mirror.stack.home.root, "dlq", "show", str(number))
    assert told["code"] == "LETTER_GONE"
    done(mirror, told["hint"])
    assert_equal(mirror)
    assert not mirror.letters


def test_the_remedy_of_a_table_that_is_captured_already(mirror: Mirror) -> None:
    for words in ("add", "decline"):
        told = refused(mirror.stack.home.root, "source", "tables", words, NAME, "public.notes")
        assert told["code"] == "TABLE_CAPTURED"
        assert "public.notes" in done(mirror, told["hint"])
    assert_equal(mirror)


def test_the_remedy_of_a_pipeline_that_was_written_anew(mirror: Mirror) -> None:
    """Of a sink that ignores changes of columns only the file knew which columns it has."""
    mirror.database.run("ALTER TABLE notes ADD w int DEFAULT 7", "UPDATE notes SET v = 'wider' WHERE id = 1")
    assert_equal(mirror)
    spec_path(mirror.context, SEARCH).write_text("{")

    def remedy() -> str:
        return next(found for found in lag.measure(mirror.context).sinks if found.sink == SEARCH).remedy

    def codes() -> set[str]:
        return {verdict.code for verdict in standing(Registry(mirror.context.registry), NAME)}

    until(lambda: remedy() == f"headrace sink resume {SEARCH}")
    done(mirror, remedy())
    assert "PIPELINE_REMADE" in codes()
    until(lambda: "resnapshot" in remedy())
    done(mirror, remedy())
    assert "PIPELINE_REMADE" not in codes()
    assert_equal(mirror)
    assert mirror.in_sync


def test_the_remedy_of_a_pipeline_file_of_before_a_table_was_taken_in(mirror: Mirror) -> None:
    """Its query does not read the table, of which no row is missing before somebody writes."""
    path = spec_path(mirror.context, CACHE)
    before = path.read_bytes()
    mirror.database.run(
        "CREATE TABLE later (id int PRIMARY KEY, v text)", "INSERT INTO later VALUES (1, 'a')"
    )
    done(mirror, f"headrace source tables add {NAME} public.later")
    mirror.settle()
    path.write_bytes(before)

    def remedies() -> set[str]:
        told = lag.measure(mirror.context).tables
        return {t.remedy for t in told if (t.sink, t.table) == (CACHE, "public.later")}

    until(lambda: remedies() == {f"headrace sink resume {CACHE}"})
    mirror.database.run("UPDATE later SET v = 'b'")
    done(mirror, f"headrace sink resume {CACHE}")
    mirror.settle()
    assert [rows["1"]["v"] for rows in mirror.stored("later").values()] == ["b"] * 3
    done(mirror, f"headrace source tables remove {NAME} public.later --purge --yes")


@pytest.fixture
def doubting(stack: RunningStack, mirror: Mirror) -> Iterator[Callable[[], dict[str, Any]]]:
    """Yield what a sink says of a table whose values are looked up under a role of its own."""
    context, database = mirror.context, mirror.database
    database.run(
        "CREATE ROLE doubter SUPERUSER LOGIN PASSWORD 'one'",
        "CREATE SCHEMA doubt",
        "CREATE TABLE doubt.vals (id int PRIMARY KEY, n numeric[])",
        "ALTER TABLE doubt.vals REPLICA IDENTITY FULL",
        "INSERT INTO doubt.vals VALUES (1, '{1}')",
    )
    place = database.dsn.rpartition("@")[2]
    beat = SourceSettings(heartbeat_ms=300)
    source.add(context, "doubts", f"postgresql://doubter:one@{place}", schemas=["doubt"], settings=beat)
    try:
        url = stack.endpoints.redis_url
        sink.add(context, "doubtcache", "redis", settings={"url": url}, source="doubts")
        try:
            mirror.settle()

            def said() -> dict[str, Any]:
                progress = read_progress(context.progress, "doubtcache")
                told = progress.tables.get("doubt.vals") if progress else None
                return dict(told.trouble or {}) if told else {}

            yield said
        finally:
            sink.remove(context, "doubtcache", purge=True)
    finally:
        source.remove(context, "doubts")
        database.run("DROP SCHEMA doubt CASCADE", "DROP ROLE doubter")


def told_state(mirror: Mirror, name: str) -> str:
    progress = read_progress(mirror.context.progress, name)
    return progress.state if progress is not None else ""


def looked_up(mirror: Mirror) -> dict[str, Any]:
    context = mirror.context
    (table,) = Registry(context.registry).source("doubts").tables
    with opened_sink(Registry(context.registry).sink("doubtcache")) as opened:
        return {stored.key: stored.row["n"] for stored in opened.scan(table.schema)}


def test_the_remedy_of_values_that_nobody_tells(
    mirror: Mirror, doubting: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database refuses the password: what the hint shows names the command that gives it another."""
    mirror.database.run(
        "ALTER ROLE doubter PASSWORD 'two'", "INSERT INTO doubt.vals VALUES (2, '{NaN,1.50}')"
    )
    until(lambda: doubting().get("code") == "VALUE_IN_DOUBT")
    assert looked_up(mirror) == {"1": ["1"]}
    shown = done(mirror, doubting()["hint"])
    (remedy,) = [line for line in shown.splitlines() if line.startswith("remedy: ")]
    monkeypatch.setenv("VARIABLE", "two")
    done(mirror, remedy.removeprefix("remedy: "))
    mirror.settle()
    assert looked_up(mirror) == {"1": ["1"], "2": ["NaN", "1.50"]}


def test_the_remedy_of_a_pipeline_that_does_not_say_whom_to_ask(
    mirror: Mirror, doubting: Callable[[], dict[str, Any]]
) -> None:
    """Its file is of an older version."""
    rewrite(mirror.context, "doubtcache", lambda _: {"paused": True})
    # The query that still knows whom to ask is over before there is something to ask.
    until(lambda: told_state(mirror, "doubtcache") == "paused")
    mirror.database.run("INSERT INTO doubt.vals VALUES (3, '{NaN}')")
    rewrite(mirror.context, "doubtcache", lambda _: {"origin": None, "paused": False})
    until(lambda: doubting().get("code") == "VALUE_IN_DOUBT")
    done(mirror, doubting()["hint"])
    assert load_pipeline(spec_path(mirror.context, "doubtcache")).origin is not None
    mirror.settle()
    assert looked_up(mirror) == {"1": ["1"], "3": ["NaN"]}


def test_the_remedy_of_sinks_that_are_not_let_go(mirror: Mirror) -> None:
    """The engine hangs: both commands are given up, and work once it is replaced, as the hints say."""
    assert_equal(mirror)
    context, spare = mirror.context, "codesspare"
    settings = {"url": mirror.stack.endpoints.redis_url, "key_prefix": "spare:"}
    sink.add(context, spare, "redis", settings=settings, source=NAME)
    mirror.database.run("CREATE TABLE more (id int PRIMARY KEY, v text)", "INSERT INTO more VALUES (1, 'm')")
    mirror.settle()
    hanging = engine_state(context.progress)["pid"]
    os.kill(hanging, signal.SIGSTOP)
    taking_in = f"headrace source tables add {NAME} public.more"
    try:
        words = [str(Path(sys.executable).with_name("headrace")), *taking_in.split()[1:], "--json"]
        home = {**os.environ, "HEADRACE_HOME": str(mirror.stack.home.root)}
        with subprocess.Popen(words, env=home, stderr=subprocess.PIPE, text=True) as beside:
            told = refused(mirror.stack.home.root, "sink", "remove", spare)
            said = json.loads(beside.communicate(timeout=WAIT_S)[1].splitlines()[-1])["error"]
        assert (told["code"], said["code"]) == ("SINK_BUSY", "SINK_BUSY")
        done(mirror, said["hint"])  # what it shows depends on whether the engine is replaced by now
        assert "three minutes" in told["hint"]
        until(lambda: engine_state(context.progress).get("pid") != hanging)
    finally:
        with suppress(ProcessLookupError):
            os.kill(hanging, signal.SIGCONT)
    done(mirror, f"headrace sink remove {spare} --purge")
    done(mirror, taking_in)
    assert_equal(mirror)
    assert all(len(rows) == 1 for rows in mirror.stored("more").values())
