"""A sink that is added while a run reads: what the run finds out is not hidden from it."""

from __future__ import annotations

import pytest

from headrace.control import lag, sink
from headrace.control.registry import Registry
from headrace.control.runs import start as runs
from headrace.control.runs.repository import run_of
from headrace.model.schema import TableId
from tests.support.mirror import Mirror, mirrored
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

ITEMS = TableId("public", "items")
HIDDEN = (
    "ALTER PUBLICATION headrace_beside DROP TABLE items",
    "DELETE FROM items WHERE id <= 10",
    "ALTER PUBLICATION headrace_beside ADD TABLE items",
)


def green(mirror: Mirror, name: str) -> bool:
    (found,) = (t for t in lag.measure(mirror.context).tables if t.sink == name)
    return found.state is lag.State.STREAMING


def test_it_is_not_green_before_the_rows_are_gone_that_the_run_finds_gone(stack: RunningStack) -> None:
    """The run sweeps the sinks that were there when it was asked for; the new one loads what it removes."""
    table = "CREATE TABLE items (id int PRIMARY KEY, name text)"
    rows = "INSERT INTO items SELECT i, 'n' || i FROM generate_series(1, 6000) i"
    with mirrored(stack, "beside", table, rows, settings={"snapshot_chunk_rows": 200}) as mirror:
        mirror.settle()
        mirror.database.run(*HIDDEN)
        registry = Registry(mirror.context.registry)
        run = runs.start(mirror.context, "beside", tables=[ITEMS], rows_per_second=100)
        until(lambda: sum(run_of(registry, run.id).counts.get("read", {}).values()) > 100)
        kept = {"url": stack.endpoints.redis_url, "key_prefix": "late:"}
        sink.add(mirror.context, "besidelate", "redis", settings=kept, source="beside")
        assert run_of(registry, run.id).phase == "reading"
        assert not green(mirror, "besidelate")
        runs.wait(mirror.context, run.id)

        def told() -> str:
            assert not green(mirror, "besidelate") or len(mirror.stored("items")["besidelate"]) == 5_990
            (found,) = (t for t in lag.measure(mirror.context).tables if t.sink == "besidelate")
            return found.remedy

        until(told)
        carry_out(told(), stack.home.root, mirror.database.run)
        mirror.settle()
        assert {name: len(found) for name, found in mirror.stored("items").items()} == dict.fromkeys(
            ("besidesearch", "besidecache", "besidelake", "besidelate"), 5_990
        )
