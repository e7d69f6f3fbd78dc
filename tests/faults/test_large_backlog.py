"""A backlog of large rows is worked off in slices: the engine keeps its memory, and its life."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import psutil
import pytest

from headrace.control.kafka import Kafka
from headrace.control.opened import open_sink
from headrace.control.registry import Registry
from headrace.control.runner import engine_state
from tests.support.mirror import KINDS, Mirror, mirrored
from tests.support.stack import RunningStack
from tests.support.waiting import settle, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(500)]

ROWS = 40_000
ROW_BYTES = 32 * 900
"""All of them are more than the driver's heap and than Spark lets a job return."""
MOST_MIB = 2_000
"""Of all Python processes of the engine: each of three sinks holds a slice of 64 MiB and what it becomes."""
GROWTH = 1.25
"""Slices differ, and so does what the allocator keeps of them; a backlog that is gathered would double it."""


@contextmanager
def memory_of(driver: int) -> Iterator[list[float]]:
    """Sample what the Python processes of an engine take while the block runs, MiB."""
    taken: list[float] = []
    over = threading.Event()

    def sample() -> None:
        process = psutil.Process(driver)
        while not over.wait(0.2):
            total = 0.0
            for one in [process, *process.children(recursive=True)]:
                with suppress(psutil.Error):
                    if "python" in one.name():
                        total += one.memory_info().rss / (1 << 20)
            taken.append(total)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield taken
    finally:
        over.set()
        sampler.join()


def driver(mirror: Mirror) -> int:
    return int(engine_state(mirror.context.progress)["pid"])


def test_a_backlog_of_large_rows_is_applied_by_the_same_engine(stack: RunningStack) -> None:
    with mirrored(stack, "backlog", "CREATE TABLE docs (id int PRIMARY KEY, body text)") as mirror:
        mirror.settle()
        mirror.pause(*KINDS)
        body = f"repeat(md5(i::text), {ROW_BYTES // 32})"
        mirror.database.run(f"INSERT INTO docs SELECT i, {body} FROM generate_series(1, {ROWS}) i")
        kafka = Kafka(mirror.context.kafka_bootstrap)
        until(lambda: kafka.ends(["backlog.public.docs"])["backlog.public.docs", 0][1] >= ROWS, 240)
        before = driver(mirror)
        with memory_of(before) as taken:
            mirror.resume(*KINDS)
            settle(mirror.context, 300)
        assert driver(mirror) == before
        for entry in Registry(mirror.context.registry).sinks("backlog"):
            with closing(open_sink(entry)) as opened:
                sizes = Counter(len(str(one.row["body"])) for one in opened.scan(mirror.schema("docs")))
            assert sizes == {ROW_BYTES: ROWS}, entry.name
        half = len(taken) // 2
        told = f"{max(taken[:half]):.0f} MiB, then {max(taken[half:]):.0f} MiB"
        assert max(taken) < MOST_MIB, told
        assert max(taken[half:]) < GROWTH * max(taken[:half]), told
        assert not mirror.letters
