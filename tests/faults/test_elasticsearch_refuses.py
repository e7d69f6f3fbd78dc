"""An Elasticsearch that is full or overloaded while people write: told by name, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import pytest

from headrace.control.lag import State, measure
from headrace.control.opened import open_sink
from headrace.control.registry import Registry
from headrace.model.errors import SinkError
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client
from tests.support.mirror import Mirror, mirrored
from tests.support.stack import RunningStack
from tests.support.waiting import until
from tests.support.watched import watched

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(500)]

NAME, TABLES = "refuses", ("goods", "others")


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        NAME,
        "CREATE TABLE goods (id int PRIMARY KEY, v text)",
        "CREATE TABLE others (id int PRIMARY KEY, v text)",
        *(f"INSERT INTO {name} SELECT i, 'v' || i FROM generate_series(1, 200) i" for name in TABLES),
    ) as opened:
        opened.settle()
        yield opened


def ask(mirror: Mirror, method: str, path: str, body: Any = None) -> Any:
    config = ElasticsearchSink.Config(url=mirror.stack.endpoints.elasticsearch_url)
    with closing(Client(config)) as client:
        return client.request(method, path, body).json()


FULL = f"/{NAME}-*/_settings?expand_wildcards=all", {"index.blocks.read_only_allow_delete": True}
"""Every index is blocked as the flood stage of a disk does: rows, tombstones, progress."""
OVERLOADED = "/_cluster/settings", {"persistent": {"indices.breaker.total.limit": "50b"}}
"""The breaker of all memory trips over whatever is written."""


@contextmanager
def put(mirror: Mirror, target: str, settings: Mapping[str, Any]) -> Iterator[None]:
    ask(mirror, "PUT", target, settings)
    try:
        yield
    finally:
        ask(mirror, "PUT", target, unset(settings))


def unset(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: unset(to) if isinstance(to, dict) else None for name, to in settings.items()}


@pytest.mark.parametrize(
    ("trouble", "words"),
    [(FULL, "flood-stage"), (OVERLOADED, "Data too large")],
    ids=["full", "overloaded"],
)
def test_what_it_refuses_waits_by_name_and_is_there_when_it_is_over(
    mirror: Mirror, trouble: tuple[str, Mapping[str, Any]], words: str
) -> None:
    mirror.settle()

    def told() -> set[str]:
        report = measure(mirror.context)
        return {
            t.reason for t in report.tables if t.sink == f"{NAME}search" and t.state is not State.STREAMING
        }

    with watched(mirror.context, lambda: equal(mirror, f"{NAME}search")) as seen:
        with put(mirror, *trouble):
            for round_ in range(3):
                mirror.database.run(
                    f"INSERT INTO goods SELECT i, repeat('{words} {round_} ', 20)"
                    f" FROM generate_series({1000 * (round_ + 1)}, {1000 * (round_ + 1) + 99}) i"
                    " ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v",
                    f"UPDATE goods SET v = v || '.' WHERE id % 3 = {round_}",
                    f"DELETE FROM goods WHERE id = (SELECT min(id) FROM goods) + {round_}",
                )
            until(lambda: any(words in reason for reason in told()))
            assert not mirror.in_sync
            until(lambda: equal(mirror, f"{NAME}cache") and equal(mirror, f"{NAME}lake"))
        mirror.settle()
    assert not seen.false_greens
    others = {
        said.state for sink in ("cache", "lake") for said in seen.words(f"{NAME}{sink}", "public.goods")
    }
    assert State.FAILED not in others, others
    assert State.RESYNC_REQUIRED not in {said.state for said in seen.words(f"{NAME}search", "public.goods")}
    assert not mirror.letters
    for sink in ("search", "cache", "lake"):
        assert equal(mirror, f"{NAME}{sink}"), sink


def equal(mirror: Mirror, sink: str, table: str = "goods") -> bool:
    wanted = {str(key): value for key, value in mirror.database.run(f"SELECT id, v FROM {table}")}
    opened = open_sink(Registry(mirror.context.registry).sink(sink))
    if isinstance(opened, ElasticsearchSink):
        # What is refused would be asked for again, for half a minute.
        opened = ElasticsearchSink(sink, opened.config.model_copy(update={"timeout": 3}))
    try:
        with closing(opened):
            found = {stored.key: stored.row["v"] for stored in opened.scan(mirror.schema(table))}
    except SinkError:
        return False
    return found == wanted
