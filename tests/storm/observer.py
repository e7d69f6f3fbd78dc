"""Looks at lag all through a storm and asks the stores whether what it says in green is so."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest

import psycopg

from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.lag import LagReport, TableLag, measure
from headrace.demo.compare import compare
from headrace.demo.stores.base import Store
from headrace.model.errors import HeadraceError
from headrace.model.schema import TableSchema
from tests.storm.content import Contents
from tests.storm.samples import Samples
from tests.storm.witness import TABLE, Ledger
from tests.support.honest import is_green

__all__ = ["CATALOGUE_GRACE_S", "CHANGING", "GRACE_S", "FalseGreen", "Observer", "Stores"]

GRACE_S = 5.0
"""A store may be unequal for so long before green is false: the heartbeat's way, and the look itself."""

CATALOGUE_GRACE_S = 14.0
"""The same of what is not in the database's log: how old a look at the catalogue may be, and its way."""

_EVERY_S = 0.5
_BLIND_S = 90.0
"""Servers that were killed may keep a look waiting, but not so long."""

CHANGING = "changing"
"""The table whose columns change."""

Stores = Callable[[], Sequence[Store]]


@dataclass(frozen=True, slots=True)
class FalseGreen:
    """A look that said in sync of a table that was not.

    Args:
        at_s: Seconds since the storm began.
        sink, table: Where.
        wrong: What was wrong.
    """

    at_s: float
    sink: str
    table: str
    wrong: str


@dataclass(slots=True)
class _Disturbances:
    """When something was done to a store from outside."""

    last: dict[str, float] = field(default_factory=dict)

    def since(self, sink: str, moment: float) -> bool:
        """Return whether the store was disturbed after ``moment``, or is being disturbed."""
        return self.last.get(sink, float("-inf")) > moment


class Observer:
    """One thread looks, another one holds what the newest look has said against the stores.

    Args:
        context: The installation.
        dsn: The source's database.
        tables: Its tables.
        stores: Opens readers of the sinks; asked anew when one breaks.
        ledger: What the witness may show.
    """

    def __init__(
        self, context: Context, dsn: str, tables: Sequence[TableSchema], stores: Stores, ledger: Ledger
    ) -> None:
        self._context = context
        self._kafka = Kafka(context.kafka_bootstrap)
        self._dsn = dsn
        self._tables = {str(schema.table): schema for schema in tables}
        self._open = stores
        self._readers: dict[str, Store] = {}
        self._ledger = ledger
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._lasting, args=(work,), name="observer", daemon=True)
            for work in (self._look, self._judge_newest)
        ]
        self._began = time.monotonic()
        self._last: dict[str, float] = {}
        sampled = [schema for schema in tables if schema.table.name not in (TABLE, CHANGING)]
        self._samples = Samples(dsn, sampled)
        self._disturbed = _Disturbances()
        self._contents = Contents(dsn, CHANGING)
        self.looks = self.greens = 0
        self.checked: Counter[str] = Counter()
        """Sink and how much of a table is known → how often one was asked about that was called in sync."""
        self.compared: Counter[str] = Counter()
        """Sink → how often the table whose columns change was compared by value."""
        self.died = ""
        self._longest_s: dict[str, float] = {}
        self._asked: dict[tuple[str, str], float] = {}
        self.false: list[FalseGreen] = []
        self.last: LagReport | None = None
        self._newest: tuple[float, list[TableLag]] = (0.0, [])
        self._judged = 0.0
        """When the look began whose tables were judged last."""

    @property
    def blind(self) -> str:
        """Return why what was found is not to be relied on; empty when it is."""
        if self.died:
            return f"the observer died: {self.died}"
        blind = [
            f"nobody {what} for {long:.0f} s" for what, long in self._longest_s.items() if long > _BLIND_S
        ]
        return ", ".join(blind)

    def start(self) -> None:
        """Begin to look."""
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Look no more."""
        for what in ("looked", "judged"):
            self._note(what)
        self._stop.set()
        for thread in self._threads:
            thread.join(_BLIND_S)
            if thread.is_alive():
                self.died = self.died or "it did not end"
        for reader in self._readers.values():
            reader.close()

    def disturb(self, sink: str, *, until: float = 0.0) -> None:
        """Note that a store is being changed from outside, now and for ``until`` more seconds."""
        self._disturbed.last[sink] = time.monotonic() + until

    def disturb_all(self, *, until: float = 0.0) -> None:
        """Note that what every store has to show is being changed from outside."""
        for sink in {found.sink for found in self.last.tables} if self.last else ():
            self.disturb(sink, until=until)

    def forget(self) -> None:
        """Forget the rows that were sampled: the database went back."""
        self._samples.forget()

    def _note(self, what: str) -> None:
        """Note that somebody has looked, or judged, just now."""
        now = time.monotonic()
        passed = now - self._last.get(what, self._began)
        self._longest_s[what] = max(self._longest_s.get(what, 0.0), passed)
        self._last[what] = now

    def _lasting(self, work: Callable[[], None]) -> None:
        try:
            while not self._stop.wait(_EVERY_S):
                work()
        except Exception as error:  # noqa: BLE001 - told in the end, whatever it is
            self.died = f"{type(error).__name__}: {error}"

    def _look(self) -> None:
        began = time.monotonic()
        try:
            report = measure(self._context, self._kafka)
        except HeadraceError:
            return
        finally:
            self._note("looked")
        self.last, self.looks = report, self.looks + 1
        green = [table for table in report.tables if is_green(table)]
        self.greens += bool(green)
        self._newest = (began, green)

    def _judge_newest(self) -> None:
        """Hold each table of the newest look that is called in sync against its store.

        One of which all is known and one of which rows were sampled come in turn, and first those that were
        not asked about for long: a newer look, of which more can be said, breaks this one off.
        """
        began, green = self._newest
        if began != self._judged:
            self._judged = began
            for table in self._in_turn(green):
                if self._newest[0] != began:
                    break
                self._judge(table, began)
        self._sample()
        self._note("judged")

    def _in_turn(self, tables: Sequence[TableLag]) -> list[TableLag]:
        def asked(table: TableLag) -> tuple[float, float]:
            return self._asked.get((table.sink, table.table), 0.0), random.random()

        oldest = sorted(tables, key=asked)
        known = [table for table in oldest if self._is_known(table)]
        others = [table for table in oldest if not self._is_known(table)]
        first, then = (known, others) if oldest and self._is_known(oldest[0]) else (others, known)
        return [table for pair in zip_longest(first, then) for table in pair if table is not None]

    def _is_known(self, table: TableLag) -> bool:
        return self._tables[table.table].table.name in (TABLE, CHANGING)

    def _judge(self, table: TableLag, began: float) -> None:
        since = began - GRACE_S
        if self._disturbed.since(table.sink, since):
            return
        try:
            wrong = self._wrong(table, since)
        except Exception:  # noqa: BLE001 - a store or a database that does not answer shows nothing
            self._readers.pop(table.sink, None)
            return
        if self._disturbed.since(table.sink, since):
            return
        if wrong is None:
            return
        self._asked[table.sink, table.table] = time.monotonic()
        self.checked[f"{table.sink} {'whole' if self._is_known(table) else 'by samples'}"] += 1
        if wrong:
            at = round(began - self._began, 1)
            self.false.append(FalseGreen(at, table.sink, table.table, "; ".join(wrong[:5])))

    def _wrong(self, table: TableLag, since: float) -> list[str] | None:
        """Return what cannot be right; None when there was nothing to ask for."""
        store = self._reader(table.sink)
        schema = self._tables[table.table]
        if schema.table.name == TABLE:
            return self._ledger.wrong((found.row for found in store.rows(schema)), since)
        if schema.table.name == CHANGING:
            return self._differing(store, since - CATALOGUE_GRACE_S + GRACE_S)
        return self._samples.wrong(store, schema, since)

    def _differing(self, store: Store, since: float) -> list[str] | None:
        """Compare a table whole, by value, when nothing was done to it since; None when something was."""
        content = self._contents.look()
        if content.since > since:
            return None
        schema = content.schema
        found = compare(
            store.name, content.expected, store.rows(schema), lambda key: store.address(schema, key)
        )
        if self._contents.look().since != content.since:
            return None
        self.compared[store.name] += 1
        return [] if found.equal else [str(found.as_dict())]

    def _reader(self, sink: str) -> Store:
        if sink not in self._readers:
            for store in self._open():
                self._readers.setdefault(store.name, store)
        return self._readers[sink]

    def _sample(self) -> None:
        with suppress(psycopg.Error):
            self._contents.look()
            self._samples.take()
