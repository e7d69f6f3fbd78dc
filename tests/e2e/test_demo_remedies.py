"""What the demo tells to do is done as it is printed, from the state that prints it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.cli.context import open_context
from headrace.demo import check, run, shop, verdict
from headrace.demo.ownership import Belongings
from headrace.observe import pidfile
from tests.support.remedy import carry_out, refused, steps
from tests.support.stack import RunningStack, fresh_home

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(900)]

SMALL = ("--seconds", "2", "--scale", "0.05", "--rate", "100")


def demo(home: Path, *arguments: str) -> None:
    command = [sys.executable, "-c", "from headrace.cli.main import run; run()", "demo", *SMALL, *arguments]
    done = subprocess.run(
        [*command, "--home", str(home)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def home(stack: RunningStack) -> Iterator[Path]:
    yield stack.home.root
    Belongings.of(stack.home.root, open_context(stack.home.root), stack.endpoints.postgres_dsn).remove()


@pytest.fixture
def execute(stack: RunningStack) -> Callable[[str], object]:
    def execute(statement: str) -> None:
        with psycopg.connect(shop.dsn_of(stack.endpoints.postgres_dsn), autocommit=True) as connection:
            connection.execute(statement.encode())

    return execute


def test_stores_that_are_filled_too_slowly(
    home: Path, execute: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hurried:
        hurried.setattr(run, "_LOAD_S", 0.01)
        told = refused(home, "demo", *SMALL, "--keep")
    assert told["code"] == "DEMO_LOAD_SLOW"
    assert "`headrace status`" in told["hint"]
    carry_out("headrace status", home, execute)
    assert "--scale 0.2" in told["hint"]
    demo(home, "--keep")  # smaller still


def test_a_comparison_for_which_a_sink_would_have_to_run(
    home: Path, execute: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out("headrace sink pause cache", home, execute)
    execute("UPDATE categories SET name = name || '+' WHERE id = 1")
    with monkeypatch.context() as hurried:
        hurried.setattr(check, "_DRAIN_S", 3.0)
        told = refused(home, "demo", "--check")
    assert (told["code"], told["hint"]) == ("DEMO_LAG", "headrace lag")
    assert "paused" in carry_out(told["hint"], home, execute)
    carry_out("headrace sink resume cache", home, execute)
    carry_out("headrace demo --check", home, execute)


def test_a_store_that_goes_while_it_is_read(
    home: Path, stack: RunningStack, execute: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = verdict.compare_all

    def goes(*arguments: Any) -> Any:
        pidfile.stop(stack.home.pidfile("redis"))
        return whole(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("headrace.demo.check.compare_all", goes)
        told = refused(home, "demo", "--check")
    assert told["code"] == "DEMO_STORE_UNREADABLE"
    shown = carry_out(told["hint"], home, execute)
    assert "not running: redis;" in shown
    carry_out(shown[shown.index("not running") :], home, execute)
    carry_out("headrace demo --check", home, execute)


def test_a_database_that_somebody_else_has_made(home: Path, execute: Callable[[str], object]) -> None:
    """The same is told of a source of that name; a whole second stack shows that it works."""
    execute(f"COMMENT ON DATABASE {shop.DATABASE} IS NULL")
    try:
        told = refused(home, "demo", *SMALL)
    finally:
        execute(f"COMMENT ON DATABASE {shop.DATABASE} IS '{shop._MARK}'")
    assert told["code"] == "DEMO_DATABASE_TAKEN"
    assert steps(told["hint"])[1] == ["demo", "--home", "DIRECTORY"]
    with fresh_home() as other:
        demo(other.root)
