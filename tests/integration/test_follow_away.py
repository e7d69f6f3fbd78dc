"""A column comes while one store hangs, or refuses: the other sinks follow, and rest once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from redis import Redis

from headrace.control import lag, sink
from headrace.control.opened import open_sink
from headrace.control.registry import Registry
from tests.support.mirror import Mirror, mirrored
from tests.support.redis_server import other_redis
from tests.support.stack import RunningStack
from tests.support.waiting import stays, until

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("honest"),
]

NAME = "patient"
AWAY = f"{NAME}away"
"""The first of the sinks, by name."""
AGAIN_S = 30.0
"""A follower that could not do all is begun twice within less, but for one that waits for a query to end."""


@dataclass(frozen=True, slots=True)
class Store:
    """A server of a fourth sink's own."""

    url: str

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Have it take connections and answer nothing."""
        with Redis.from_url(self.url) as redis:
            pid = redis.info("server")["process_id"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Have it let nobody in."""
        with Redis.from_url(self.url) as redis:
            redis.config_set("requirepass", "another")
            try:
                yield
            finally:
                redis.execute_command("AUTH", "another")
                redis.config_set("requirepass", "")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with other_redis(tmp_path_factory.mktemp("redis"), maxmemory_policy="noeviction") as url:
        yield Store(url)


@pytest.fixture(scope="module")
def mirror(stack: RunningStack, store: Store) -> Iterator[Mirror]:
    with mirrored(
        stack,
        NAME,
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t SELECT generate_series(1, 50)",
    ) as made:
        sink.add(made.context, AWAY, "redis", settings={"url": store.url}, source=NAME)
        made.settle()
        yield made


def states(mirror: Mirror) -> dict[str, lag.State]:
    """Return what lag says of each sink."""
    return {found.sink: found.state for found in lag.measure(mirror.context).sinks}


def queries(mirror: Mirror) -> dict[str, int]:
    """Return since when the query of each of the other sinks runs."""
    paths = {name: mirror.context.progress / f"{name}.json" for name in states(mirror) if name != AWAY}
    return {name: json.loads(path.read_text())["started_ms"] for name, path in paths.items()}


def values(mirror: Mirror, column: str, *, of: str) -> list[object]:
    """Return what a sink's store has in a column, each value once."""
    with closing(open_sink(Registry(mirror.context.registry).sink(of))) as opened:
        return list({found.row.get(column) for found in opened.scan(mirror.schema("t"))})


@pytest.mark.parametrize("trouble", [Store.hanging, Store.refusing], ids=["hangs", "refuses"])
def test_the_other_sinks_follow_and_are_left_alone_after_that(
    mirror: Mirror, store: Store, trouble: Any
) -> None:
    mirror.settle()
    column, default, before = trouble.__name__, len(trouble.__name__), queries(mirror)
    with trouble(store):
        mirror.database.run(f"ALTER TABLE t ADD {column} int DEFAULT {default}")
        until(lambda: column in mirror.schema("t").by_name)
        until(lambda: all(values(mirror, column, of=name) == [default] for name in before), 150.0)
        until(lambda: {states(mirror)[name] for name in before} == {lag.State.STREAMING})
        now = queries(mirror)
        assert all(now[name] > before[name] for name in now)
        stays(lambda: queries(mirror) == now, AGAIN_S, why=lambda: (now, queries(mirror)))
        assert states(mirror)[AWAY] is not lag.State.STREAMING
    until(lambda: values(mirror, column, of=AWAY) == [default], 150.0)
    mirror.settle()
    assert not (mirror.context.run / f"follow-{NAME}.json").exists()
