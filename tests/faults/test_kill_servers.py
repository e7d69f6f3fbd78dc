"""kill -9 of any server while people write; after ``up`` every row is equal in every store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from headrace.control.runner import engine_state
from headrace.observe import pidfile
from tests.support.patience import WAIT_S
from tests.support.shop import Shop
from tests.support.waiting import elapse

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]


def kill(shop: Shop, *names: str) -> None:
    for name in names:
        pid = pidfile.alive(shop.running.home.pidfile(name))
        assert pid is not None, name
        os.kill(pid, signal.SIGKILL)


def up(shop: Shop) -> None:
    """Run the command a user would run."""
    command = [sys.executable, "-c", "from headrace.cli.main import run; run()", "up"]
    done = subprocess.run(
        [*command, "--home", str(shop.running.home.root)],
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


_SLOW_TO_START = (
    pytest.param("elasticsearch", 2),
    pytest.param("connect", 3),
    pytest.param("kafka", 4),
)


@pytest.mark.parametrize(("name", "seed"), [("redis", 1), ("postgres", 5), *_SLOW_TO_START])
def test_one_server_is_killed_while_people_write(shop: Shop, name: str, seed: int) -> None:
    before = {server.name: server.pid for server in shop.running.stack.status()}
    people = shop.people(seed=seed, bulk_rows=300, bulk_after=0.5)
    people.start()
    elapse(1.5)
    kill(shop, name)
    elapse(1.5)
    up(shop)
    elapse(1.5)
    assert people.stop().changes > 0
    shop.converge()
    after = {server.name: server.pid for server in shop.running.stack.status()}
    assert {n for n in before if before[n] != after[n]} == {name}


def test_the_power_fails(shop: Shop) -> None:
    """Everything dies at once, the engine and its guardian too; all of it comes back where it was."""
    shop.write(1.5, seed=77)
    driver = engine_state(shop.context.progress)["pid"]
    kill(shop, "engine", *(server.name for server in shop.running.stack.status() if server.name != "engine"))
    os.kill(driver, signal.SIGKILL)
    up(shop)
    shop.write(1.0, seed=78)
    shop.converge()
