"""A store that does not answer, a driver that hangs: neither holds up the other sinks for good."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace

import psutil
import psycopg
import pytest

from headrace.control import sink
from headrace.control.lag import State, measure
from headrace.control.runner import engine_state
from headrace.demo.stock import sku
from headrace.model.errors import HeadraceError
from headrace.model.schema import TableId
from headrace.observe import pidfile
from tests.support.patience import PATIENCE
from tests.support.remedy import carry_out
from tests.support.shop import Shop
from tests.support.waiting import elapse, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]


def test_a_sink_that_is_paused_beside_a_store_that_is_down_holds_up_no_other(shop: Shop) -> None:
    name = f"{shop.name}_cache"
    pid = pidfile.alive(shop.running.home.pidfile("redis"))
    assert pid is not None
    shop.converge()
    os.kill(pid, signal.SIGKILL)
    oldest, over = [0.0], threading.Event()

    def ages() -> None:
        while not over.wait(0.2):
            said = engine_state(shop.context.progress)
            oldest[0] = max(oldest[0], time.time() - said["updated_ms"] / 1000)

    watching = threading.Thread(target=ages)
    watching.start()
    try:
        with psycopg.connect(shop.dsn, autocommit=True) as database:
            database.execute("UPDATE products SET name = name || '!' WHERE sku = %s", (sku(1),))
            until(lambda: {s.sink: s.state.value for s in measure(shop.context).sinks}[name] != "streaming")
            with suppress(HeadraceError):  # whether the query lets go in time is not what is asked here
                sink.pause(shop.context, name)
            database.execute("UPDATE products SET name = name || '?' WHERE sku = %s", (sku(2),))
        others = replace(shop, sinks={other: kind for other, kind in shop.sinks.items() if other != name})
        until(lambda: all(compared.equal for compared in others.compare()))
    finally:
        over.set()
        watching.join()
        shop.running.stack.up()
        sink.resume(shop.context, name)
    assert oldest[0] < 10 * PATIENCE, "the engine was silent"
    shop.converge()


def test_a_driver_that_hangs_is_replaced(shop: Shop) -> None:
    hanging = engine_state(shop.context.progress)["pid"]
    os.kill(hanging, signal.SIGSTOP)
    shop.write(1.0, seed=91)
    until(lambda: engine_state(shop.context.progress)["pid"] != hanging, 240)
    shop.converge()


def test_an_engine_whose_machine_has_slept_goes_on(shop: Shop) -> None:
    """It sleeps for longer than Spark lets an executor be silent.

    Spark would let go of the executor that runs in its own process, say so every ten seconds, and end that
    process after ten minutes.
    """
    log = shop.context.engine().logs / "engine.log"
    before = len(log.read_bytes())
    pid = pidfile.alive(shop.context.run / "engine.pid")
    assert pid is not None
    guardian = psutil.Process(pid)
    asleep = [guardian, *guardian.children(recursive=True)]
    for process in asleep:
        process.suspend()
    try:
        elapse(200)
    finally:
        for process in reversed(asleep):
            process.resume()
    shop.write(1.0, seed=92)
    shop.converge()
    added = f"{shop.name}_late"
    kept = {"url": shop.running.endpoints.redis_url, "key_prefix": "late:"}
    sink.add(
        shop.context, added, "redis", settings=kept, source=shop.name, tables=[TableId("public", "products")]
    )
    sink.remove(shop.context, added, purge=True)
    assert b"in heartbeater" not in log.read_bytes()[before:]


def test_a_watcher_that_hangs_is_told_and_replaced(shop: Shop) -> None:
    shop.converge()
    hanging = watcher(shop)
    hanging.suspend()
    began = time.monotonic()
    with psycopg.connect(shop.dsn, autocommit=True) as database:
        database.execute("ALTER TABLE products ALTER name TYPE text USING upper(name)")

        def told() -> str:
            asked, report = time.monotonic() - began, measure(shop.context)
            found = next(t for t in report.tables if t.table == "public.products")
            # A little longer than what a look may be old.
            assert found.state is not State.STREAMING or asked < 12, found
            assert not report.in_sync or asked < 8, found
            return found.state.value

        until(lambda: told() == "degraded")
        until(lambda: told() == "resync_required", 240)
        assert watcher(shop).pid != hanging.pid
        found = next(t for t in measure(shop.context).tables if t.table == "public.products")
        carry_out(
            found.remedy, shop.running.home.root, lambda statement: database.execute(statement.encode())
        )
    shop.converge()


def watcher(shop: Shop) -> psutil.Process:
    """Return the process that looks at the sources of the shop's installation."""
    home = str(shop.running.home.root)
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "headrace.control.watcher" in words and any(home in word for word in words):
            return process
    raise AssertionError("no watcher runs")
