"""Looks at ``lag`` all through a test, and asks the stores whether what it calls in sync is so.

A row counts when it has stood in the database, as it is, since before the time that the look proves. A row
that only the store has counts when the database has not had it since then. What is found wrong must be found
again at the next look, for a row may have come and gone between two.

A target that is gone, or cannot be read, counts when its server has told so for as long as a row may be late,
at each look. A server that does not answer shows nothing.

When a test has ended, each table that is called in sync is compared once more.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError, DeltaProtocolError
from elasticsearch import BadRequestError, NotFoundError
from psycopg.conninfo import make_conninfo

from headrace.config.pipeline import SchemaPolicy
from headrace.control.capture import source_of
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.lag import State, TableLag, measure
from headrace.control.registry import Registry, SinkEntry, SourceEntry
from headrace.demo.compare import Expected, Found, compare
from headrace.demo.original import Original
from headrace.demo.pipeline import open_stores
from headrace.demo.stores.base import Store
from headrace.local.endpoints import Endpoints, endpoints_of
from headrace.local.home import Home
from headrace.model.schema import LogicalType, TableSchema
from headrace.model.values import key_reader
from tests.support.patience import WAIT_S
from tests.support.waiting import elapse

__all__ = ["Honesty", "honest", "is_green"]

GRACE_S = 5.0
"""A store may be unequal for so long before green is false: the heartbeat's way, and the look itself."""

COLUMNS_GRACE_S = 14.0
"""The same after a table's columns have changed, which is not in the database's log."""

_EVERY_S = 1.0
_END_S = 7.0
"""So long is waited, when a test has ended, for tables that cannot be compared yet: a grace, and a look."""

_END_AT_MOST_S = 20.0
"""The same for what was found wrong, and has to be found again."""

_UNREADABLE: Mapping[str, tuple[type[Exception], ...]] = {
    "elasticsearch": (NotFoundError, BadRequestError),
    "delta": (DeltaError, OSError, pa.ArrowInvalid),
}
"""Kind of sink → errors with which a server that is there tells that a target is not there, or not readable.

Elasticsearch that starts, or has too much to do, answers with others. In Redis the rows are missing then.
"""

_MOST_ROWS = 20_000
"""Tables with more rows are not read again and again."""

_ENOUGH = 10
"""So often may a table be about to be compared in vain: servers come and go."""

Place = tuple[str, str]
"""Sink and table, as ``lag`` writes them."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A table as the database held it.

    Attributes:
        at: When it had been read, by the monotonic clock.
        schema: Its columns, of types that are spelled the same everywhere.
        rows: Key → row.
    """

    at: float
    schema: TableSchema
    rows: Mapping[str, Mapping[str, Any]]

    def standing(self, before: Scan) -> set[str]:
        """Return the keys of the rows that were there before, as they are."""
        return {key for key, row in self.rows.items() if before.rows.get(key) == row}


@dataclass
class Honesty:
    """One thread that looks, judges and remembers, while the ``with`` block lasts.

    Args:
        context: The installation.
        endpoints: Of its stack.
    """

    context: Context
    endpoints: Endpoints
    looks: int = 0
    due: int = 0
    """How often a table was to be compared that had been called in sync for longer than its grace."""
    judged: Counter[str] = field(default_factory=Counter)
    """Sink → how often a table of it that was called in sync was compared."""
    false: list[str] = field(default_factory=list)
    """What was green and wrong."""

    def __post_init__(self) -> None:
        self._registry = Registry(self.context.registry)
        self._kafka = Kafka(self.context.kafka_bootstrap)
        self._scans: dict[tuple[str, str], deque[Scan]] = {}
        self._extra: dict[tuple[Place, str], float] = {}
        self._suspects: dict[Place, set[str]] = {}
        self._unreadable: dict[Place, float] = {}
        self._compared: set[Place] = set()
        self._green: dict[Place, float] = {}
        self._large: set[tuple[str, str]] = set()
        self._why: deque[str] = deque(maxlen=3)
        self._readers: dict[str, tuple[str, Store]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="honest", daemon=True)

    def __enter__(self) -> Honesty:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join(WAIT_S)
        if not self._thread.is_alive():
            self._end()
            for _, reader in self._readers.values():
                reader.close()

    def _run(self) -> None:
        while not self._over.wait(_EVERY_S):
            with self._noting():
                self._look()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note what kept somebody from looking: servers and databases come and go in these tests."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - what does not answer shows nothing
            self._why.append(repr(error))

    @property
    def blind(self) -> str:
        """Return why nothing is known of the stores, though it could be; empty when something is."""
        if self.looks and (self.judged.total() or self.due < _ENOUGH):
            return ""
        did = f"{self.looks} looks, {self.due} tables to compare, and none was compared"
        return "\n".join([did, *self._why])

    def _look(self) -> None:
        green, began = self._seen()
        if not green:
            return
        due = [place for place, table in green.items() if self._is_due(table, began)]
        self.due += bool(due)
        self._weigh(green[random.choice(sorted(self._suspects or due or green))], began)

    def _seen(self) -> tuple[dict[Place, TableLag], float]:
        """Look once; return what is called in sync, and when the look began."""
        for source in self._registry.sources():
            with self._noting():
                self._scan(source)
        began = time.monotonic()
        report = measure(self.context, self._kafka)
        self.looks += 1
        green = {(table.sink, table.table): table for table in report.tables if is_green(table)}
        for known in (self._suspects, self._unreadable):
            for place in known.keys() - green.keys():
                del known[place]
        self._green = {place: self._green.get(place, began) for place in green}
        return green, began

    def _weigh(self, table: TableLag, began: float) -> bool:
        """Compare a table that is called in sync; return whether nothing of it is left to be asked."""
        place = table.sink, table.table
        judged = self._judge(table, began)
        wrong, doubtful = judged or (set(), False)
        if again := wrong & self._suspects.pop(place, set()):
            self.false.append(f"{' '.join(place)} was called in sync: {', '.join(sorted(again)[:5])}")
        if wrong or doubtful:
            self._suspects[place] = wrong
        return bool(again) or (judged is not None and place not in self._suspects)

    def _end(self) -> None:
        """Compare once more what is called in sync when a test has ended, and first what never was."""
        began = time.monotonic()
        left: set[Place] | None = None
        while True:
            before = left
            with self._noting():
                left = self._end_look(began, left)
            may_last = _END_AT_MOST_S if left else _END_S
            if left == set() or left is before or time.monotonic() > began + may_last:
                return  # all is compared, nobody answers any more, or it lasts too long
            elapse(_EVERY_S)

    def _end_look(self, ended: float, before: set[Place] | None) -> set[Place]:
        """Look once after the end; return the tables that are to be looked at again."""
        green, began = self._seen()
        left = green.keys() if before is None else before & green.keys()
        again: set[Place] = set()
        for place in sorted(left, key=lambda place: (place in self._compared, place)):
            is_late = time.monotonic() > ended + _END_S
            if is_late and place in self._compared and place not in self._suspects:
                continue
            if (ready := self._comparable_from(green[place])) > began:
                again |= {place} if ready < ended + _END_S else set()
                continue
            is_certain = False
            with self._noting():
                is_certain = self._weigh(green[place], began)
            if not is_certain and (place in self._suspects or not is_late):
                again.add(place)
        return again

    def _comparable_from(self, table: TableLag) -> float:
        """Return from when on a look can tell of a table that it is wrong; infinite where none ever can."""
        entry, place = self._registry.sink(table.sink), (table.source, table.table)
        scans = self._scans.get(place)
        if (
            not scans
            or place in self._large
            or entry.on_schema_change == SchemaPolicy.IGNORE
            or not self._is_here(entry)
        ):
            return float("inf")
        newest = [scan.at for scan in scans if scan.schema == scans[-1].schema]
        if len(newest) < len(scans):
            return newest[0] + COLUMNS_GRACE_S
        return scans[0].at + _grace(table)

    def _is_due(self, table: TableLag, began: float) -> bool:
        """Return whether a table has been called in sync for so long that it has to be comparable."""
        entry, place = self._registry.sink(table.sink), (table.source, table.table)
        return (
            self._green[table.sink, table.table] < _proven(table, began)
            and place not in self._large
            and len({scan.schema for scan in self._scans.get(place, ())}) < 2
            and entry.on_schema_change != SchemaPolicy.IGNORE
            and self._is_here(entry)
        )

    def _scan(self, source: SourceEntry) -> None:
        """Read the source's tables, and remember them as they are."""
        password = source_of(self.context, source).password
        dsn = make_conninfo(source.address, password=password, connect_timeout=3)
        known = {table.schema.table: table.schema for table in source.tables}
        for namespace in {table.schema for table in known}:
            with Original.open(dsn, namespace) as original:
                for schema in original.tables():
                    if schema.table not in known:
                        continue
                    if original.count(schema) > _MOST_ROWS:
                        self._large.add((source.name, str(schema.table)))
                        continue
                    schema = _comparable(schema, known[schema.table])
                    key_in = key_reader(schema)
                    rows = {key_in(row).id: row for row in original.rows(schema)}
                    scans = self._scans.setdefault((source.name, str(schema.table)), deque())
                    scans.append(Scan(time.monotonic(), schema, rows))
                    while len(scans) > 1 and scans[1].at < time.monotonic() - COLUMNS_GRACE_S:
                        scans.popleft()

    def _judge(self, table: TableLag, began: float) -> tuple[set[str], bool] | None:
        """Return what cannot be right about a table that is called in sync, and whether to ask again.

        None when it could not be compared.
        """
        entry = self._registry.sink(table.sink)
        scans = self._scans.get((table.source, table.table), deque[Scan]())
        before = [scan for scan in scans if scan.at < _proven(table, began)]
        is_known = len({scan.schema for scan in scans}) == 1 and entry.on_schema_change != SchemaPolicy.IGNORE
        if not before or not is_known or not self._is_here(entry):
            return None
        store, schema = self._reader(entry), before[-1].schema
        found = self._rows(entry, store, schema, (table.sink, table.table), began)
        if isinstance(found, Exception):
            is_long = self._unreadable[table.sink, table.table] < _proven(table, began)
            return ({f"nothing can be read: {type(found).__name__}"} if is_long else set()), True
        self._scan(self._registry.source(table.source))
        now = scans[-1]
        if now.schema != schema or now.at < began:
            return None
        self.judged[table.sink] += 1
        self._compared.add((table.sink, table.table))
        expected = Expected(schema, now.rows.values())
        seen = compare(store.name, expected, found, lambda key: store.address(schema, key))
        standing = now.standing(before[-1])
        wrong = {f"{key} is missing" for key in standing.intersection(seen.missing)}
        wrong |= {f"{key} has another {seen.different[key]}" for key in standing & seen.different.keys()}
        place = table.sink, table.table
        known = {key: at for (where, key), at in self._extra.items() if where == place}
        for key in known.keys() - set(seen.extra):
            del self._extra[place, key]
        for key in seen.extra:
            self._extra.setdefault((place, key), now.at)
        wrong |= {f"{key} is not to be there" for key in seen.extra if known.get(key, now.at) < before[-1].at}
        return wrong, bool(seen.extra)

    def _rows(
        self, entry: SinkEntry, store: Store, schema: TableSchema, place: Place, began: float
    ) -> list[Found] | Exception:
        """Return what a store holds of a table, or what it tells of a target that cannot be read."""
        try:
            found = list(store.rows(schema))
        except _UNREADABLE.get(entry.kind, ()) as error:
            # A reader may know files of a table that was made anew meanwhile: the next look opens another.
            self._readers.pop(entry.name)[1].close()
            if isinstance(error, DeltaProtocolError):  # a feature that this reader lacks
                raise
            self._why.append(repr(error))
            self._unreadable.setdefault(place, began)
            return error
        except Exception:
            self._unreadable.pop(place, None)
            raise
        self._unreadable.pop(place, None)
        return found

    def _is_here(self, entry: SinkEntry) -> bool:
        """Return whether the sink's target is in this stack."""
        if entry.kind == "delta":
            return True
        mine = self.endpoints.redis_url if entry.kind == "redis" else self.endpoints.elasticsearch_url
        theirs = urlsplit(str(entry.settings["url"]))
        return (theirs.port, theirs.path.strip("/0")) == (urlsplit(mine).port, "")

    def _reader(self, entry: SinkEntry) -> Store:
        facts = repr(entry.tables)
        if entry.name in self._readers and self._readers[entry.name][0] != facts:
            self._readers.pop(entry.name)[1].close()
        if entry.name not in self._readers:
            sinks = {entry.name: entry.kind}
            (store,) = open_stores(self.context, self.endpoints, source=entry.source, sinks=sinks)
            self._readers[entry.name] = facts, store
        return self._readers[entry.name][1]


def _comparable(schema: TableSchema, mirrored: TableSchema) -> TableSchema:
    """Return the schema with the columns that are mirrored and spelled the same everywhere."""
    names = {column.name for column in mirrored.columns}
    kept = tuple(c for c in schema.columns if c.name in names and c.type is not LogicalType.OTHER)
    return replace(schema, columns=kept)


def _proven(table: TableLag, began: float) -> float:
    """Return the time of which a look that began then tells: what was there before is to be in the store."""
    return began - _grace(table)


def _grace(table: TableLag) -> float:
    return max(GRACE_S, (table.freshness_seconds or 0.0) + 2.0)


def is_green(table: TableLag) -> bool:
    """Return whether status says of a table that its store has all of it."""
    return table.state is State.STREAMING and table.lag_records == 0


@pytest.fixture
def honest(request: pytest.FixtureRequest) -> Iterator[Honesty]:
    """Fail a test in which ``lag`` called in sync what was not, whatever else the test finds.

    It fails as well when nobody could look, or compare anything of what was called in sync for long.
    """
    own = [name for name in ("shop", "mirror", "place") if name in request.fixturenames]
    context: Context = request.getfixturevalue(own[0]).context if own else request.getfixturevalue("context")
    with Honesty(context, endpoints_of(Home(context.run.parent))) as watching:
        yield watching
    assert not watching.false, "\n".join(watching.false[:20])
    assert not watching.blind, watching.blind
