"""A sink that is added while a run reads, or after one: what the run finds out is not hidden from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.control import lag, sink
from headrace.control.registry import Registry
from headrace.control.runs import start as runs
from headrace.control.runs.repository import run_of
from headrace.control.verdicts import standing
from headrace.model.schema import TableId
from tests.support.mirror import Mirror, mirrored
from tests.support.remedy import carry_out, refused
from tests.support.stack import RunningStack
from tests.support.waiting import until

if TYPE_CHECKING:
    from typing_extensions import LiteralString

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

ITEMS = TableId("public", "items")
TABLE = "CREATE TABLE items (id int PRIMARY KEY, name text)"


def hide(mirror: Mirror, last: LiteralString) -> None:
    """Delete the rows up to one, of which nobody is told."""
    ((name,),) = mirror.database.run("SELECT quote_ident(pubname) FROM pg_publication")
    out, back = (f"ALTER PUBLICATION {name} {word} TABLE items" for word in ("DROP", "ADD"))
    mirror.database.run(out, "DELETE FROM items WHERE id <= " + last, back)


def green(mirror: Mirror, name: str) -> bool:
    (found,) = (t for t in lag.measure(mirror.context).tables if t.sink == name)
    return found.state is lag.State.STREAMING


def test_it_is_not_green_before_the_rows_are_gone_that_the_run_finds_gone(stack: RunningStack) -> None:
    """The run sweeps the sinks that were there when it was asked for; the new one loads what it removes."""
    rows = "INSERT INTO items SELECT i, 'n' || i FROM generate_series(1, 6000) i"
    with mirrored(stack, "beside", TABLE, rows, settings={"snapshot_chunk_rows": 200}) as mirror:
        mirror.settle()
        hide(mirror, "10")
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


def test_one_that_comes_after_a_run_was_ended_has_no_row_that_was_gone(stack: RunningStack) -> None:
    rows = "INSERT INTO items SELECT i, 'n' || i FROM generate_series(1, 1000) i"
    with mirrored(stack, "ended", TABLE, rows) as mirror:
        mirror.settle()
        hide(mirror, "300")
        until(lambda: standing(Registry(mirror.context.registry), "ended"))
        asks = refused(stack.home.root, "resnapshot", "ended", "public.items")
        assert asks["code"] == "RESNAPSHOT_SWEEP_LARGE"
        runs.abort(mirror.context, asks["hint"].split()[3])
        kept = {"url": stack.endpoints.redis_url, "key_prefix": "after:"}
        sink.add(mirror.context, "endedlate", "redis", settings=kept, source="ended")
        until(lambda: green(mirror, "endedlate"))
        served = {name: len(found) for name, found in mirror.stored("items").items()}
        before = ("endedsearch", "endedcache", "endedlake")
        assert served == {**dict.fromkeys(before, 1_000), "endedlate": 700}
        assert not any(green(mirror, name) for name in before)
        runs.resnapshot(mirror.context, "ended", sweep_many=True)
        mirror.settle()
        assert {len(found) for found in mirror.stored("items").values()} == {700}
