"""One sitting of a whole tool between Postgres and Elasticsearch: first load, a stream of changes, lag."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import psycopg

from headrace.demo.compare import Expected, Found, compare
from headrace.demo.original import Original
from headrace.demo.shop import dsn_of
from headrace.demo.spelling import embedded
from headrace.model.schema import LogicalType, TableSchema
from tests.bench.drain.meter import Meter
from tests.bench.drain.workloads import flat, wide_rows

__all__ = ["MARKED", "TABLE", "WARM_UPS", "Sat", "Tool", "peer_database", "sit", "stream"]

TABLE = "flat"
MARKED = 1_000
"""What the column ``quantity`` has at least in rows that were streamed."""
WARM_UPS = 2
"""Sittings of each tool that do not count: a JVM compiles for that long while it does little else."""
_CHUNK = 100
_PATIENCE_S = 150.0
_LAG_EVERY_S = 0.3
_COUNT_EVERY_S = 0.25
_PAGE = 5_000


class Tool(Protocol):
    """What keeps an index equal to a table."""

    @property
    def name(self) -> str:
        """Return the name of its side."""
        ...

    def running(self, dsn: str) -> AbstractContextManager[Running]:
        """Set up and start on a database; at the end stop and remove everything."""
        ...


@dataclass(frozen=True, slots=True)
class Running:
    """A tool at work.

    Args:
        index: The index's address.
        processes: Name → pid of its processes, of those that are not the local stack's.
    """

    index: str
    processes: dict[str, int]


@dataclass(frozen=True, slots=True)
class Sat:
    """What one sitting gave.

    Args:
        loaded: Rows per second of the first load, set-up included.
        streamed: Changes per second, from the first commit until all could be searched.
        lag_ms: Commit → readable by GET, of rows committed now and then.
        meter: What the stream of changes cost.
        changes: How many those were.
        wrong: How the index differs from the table.
    """

    loaded: float
    streamed: float
    lag_ms: tuple[float, ...]
    meter: Meter
    changes: int
    wrong: tuple[str, ...]


def sit(tool: Tool, server: str, run: Any, rows: int, markers: int) -> Sat:
    """Let a tool load ``rows`` rows, stream as many changes, and carry some single rows.

    Args:
        tool: The tool.
        server: A superuser's URL of the Postgres.
        run: Directory of the local stack's pid files.
        rows: How many rows there are at first.
        markers: How many single rows are committed, one after the other.
    """
    with peer_database(server, rows) as dsn, httpx.Client(timeout=30.0) as client:
        began = time.monotonic()
        with tool.running(dsn) as at:
            index = _Index(client, at.index)
            index.wait(rows)
            loaded = time.monotonic() - began
            with Meter(run, at.processes) as meter, psycopg.connect(dsn) as connection:
                began = time.monotonic()
                changes = stream(connection, rows)
                index.wait(changes, least=MARKED)
                streamed = time.monotonic() - began
            lag = _lag(dsn, index, first=2 * rows + 1, count=markers)
            wrong = _wrong(dsn, index)
    return Sat(rows / loaded, changes / streamed, lag, meter, changes, wrong)


@contextmanager
def peer_database(server: str, rows: int) -> Iterator[str]:
    """Yield a database with the table and its first rows; drop it at the end."""
    name = f"peer_{time.time_ns() % 1_000_000}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    dsn = dsn_of(server, name)
    try:
        with psycopg.connect(dsn) as connection:
            connection.execute(flat(rows).ddl)
            connection.execute(wide_rows(TABLE, 1, rows))
        yield dsn
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def stream(connection: psycopg.Connection[Any], rows: int) -> int:
    """Commit inserts, then updates of other rows, half and half; return how many there were."""
    half = rows // 2
    chunks = [(first, min(half, first + _CHUNK - 1)) for first in range(1, half + 1, _CHUNK)]
    for first, last in chunks:
        connection.execute(wide_rows(TABLE, rows + first, rows + last, quantity=MARKED))
        connection.commit()
    for first, last in chunks:
        connection.execute(
            f"UPDATE {TABLE} SET quantity = {MARKED} + quantity, note = md5(id::text), amount = amount + 1,"
            f" updated_at = updated_at + interval '1.000001 s' WHERE id BETWEEN {first} AND {last}"
        )
        connection.commit()
    return 2 * half


def _lag(dsn: str, index: _Index, *, first: int, count: int) -> tuple[float, ...]:
    found = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number in range(first, first + count):
            time.sleep(_LAG_EVERY_S)
            connection.execute(wide_rows(TABLE, number, number))
            began = time.monotonic()
            index.wait_row(number)
            found.append((time.monotonic() - began) * 1000)
    return tuple(found)


def _wrong(dsn: str, index: _Index) -> tuple[str, ...]:
    with Original.open(dsn) as original:
        schema = next(schema for schema in original.tables() if schema.table.name == TABLE)
        expected = Expected(schema, original.rows(schema))
    found = compare("index", expected, index.rows(schema), lambda key: key.id)
    return () if found.equal else (str(found.as_dict()),)


class _Index:
    """One index of any version's server, by requests that all versions take."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self._client = client
        self._url = url

    def wait(self, rows: int, *, least: int = 0) -> None:
        """Return when a search finds ``rows`` rows, of those whose quantity is at least ``least``."""
        deadline = time.monotonic() + _PATIENCE_S
        query = {"query": {"range": {"quantity": {"gte": least}}}}
        found = -1
        while found < rows:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{found} of {rows} rows after {_PATIENCE_S:.0f} s")
            time.sleep(_COUNT_EVERY_S)
            self._client.post(f"{self._url}/_refresh")
            answer = self._client.post(f"{self._url}/_count", json=query)
            found = answer.json()["count"] if answer.is_success else -1

    def wait_row(self, number: int) -> None:
        """Return when a row can be read by its id."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self._client.get(f"{self._url}/_doc/{number}?_source=false").is_success:
            if time.monotonic() > deadline:
                raise TimeoutError(f"row {number} is not there after {_PATIENCE_S:.0f} s")
            time.sleep(0.004)

    def rows(self, schema: TableSchema) -> Iterator[Found]:
        """Yield every row."""
        self._asked("_refresh")
        decimals = {c.name for c in schema.columns if c.type is LogicalType.NUMERIC}
        body: dict[str, Any] = {"size": _PAGE, "sort": [{"id": "asc"}]}
        while hits := self._asked("_search", body)["hits"]["hits"]:
            for hit in hits:
                row = embedded(schema, hit["_source"])
                for name in decimals:
                    if isinstance(row[name], float | int):  # a number where ours keeps the spelling
                        row[name] = f"{row[name]:.2f}"
                yield Found(hit["_id"], row)
            body["search_after"] = hits[-1]["sort"]

    def _asked(self, what: str, body: dict[str, Any] | None = None) -> Any:
        """Return an answer, asking again for as long as the server is busy."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = self._client.post(f"{self._url}/{what}", json=body)
            if answer.status_code != httpx.codes.TOO_MANY_REQUESTS or time.monotonic() > deadline:
                return answer.raise_for_status().json()
            time.sleep(0.3)
