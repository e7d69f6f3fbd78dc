"""A table whose every committed state is known, with its time: what a store may show, and what it may not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg

__all__ = ["CREATE", "ROWS", "TABLE", "Ledger", "Witness"]

TABLE = "witness"
ROWS = 40
CREATE = f"""
CREATE TABLE {TABLE} (id integer PRIMARY KEY, n bigint NOT NULL, note text);
INSERT INTO {TABLE} SELECT i, 0, repeat(md5(i::text), 3) FROM generate_series(1, {ROWS}) i;
"""
_PAUSE_S = 0.1


@dataclass(slots=True)
class _State:
    """One state of a row.

    Args:
        began: When its statement was sent.
        acked: When its commit was acknowledged; None while nobody knows.
        n: The row's number; None when the row was deleted.
    """

    began: float
    acked: float | None
    n: int | None


@dataclass(slots=True)
class Ledger:
    """Every state of every row, in the order of their commits; one writer, many readers."""

    states: dict[int, list[_State]] = field(
        default_factory=lambda: {number: [_State(0.0, 0.0, 0)] for number in range(1, ROWS + 1)}
    )
    lock: threading.Lock = field(default_factory=threading.Lock)

    def allowed(self, number: int, since: float) -> set[int | None]:
        """Return what a reader may see of a row, if it is to see everything acknowledged before ``since``."""
        with self.lock:
            states = list(self.states[number])
        proven = [
            place for place, state in enumerate(states) if state.acked is not None and state.acked <= since
        ]
        return {state.n for state in states[max(proven) :]}

    def wrong(self, seen: Iterable[Mapping[str, Any]], since: float) -> list[str]:
        """Return what cannot be right about rows that a store shows."""
        found = {int(row["id"]): int(row["n"]) for row in seen}
        strange = [f"row {number} was never there" for number in found.keys() - self.states.keys()]
        for number in self.states:
            allowed = self.allowed(number, since)
            if found.get(number) not in allowed:
                told = ", ".join(sorted(map(str, allowed)))
                strange.append(f"row {number} shows {found.get(number)}, allowed: {told}")
        return strange


class Witness:
    """Writes the table at a steady pace, one statement a transaction, and notes what is acknowledged.

    Args:
        dsn: The database.
        seed: Of its choices.
    """

    def __init__(self, dsn: str, seed: int) -> None:
        self._dsn = dsn
        self._rng = Random(f"witness/{seed}")
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.ledger = Ledger()
        self.written = 0

    def start(self) -> None:
        """Begin, also once more."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write no more; states that nobody acknowledged are looked up."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        for connection in self._connections():
            try:
                self._settle(connection)
                while not self._stop.wait(_PAUSE_S):
                    self._write(connection)
            except psycopg.Error:
                self._stop.wait(0.5)

    def _connections(self) -> Iterator[psycopg.Connection[Any]]:
        while True:
            try:
                with psycopg.connect(self._dsn, autocommit=True, connect_timeout=5) as connection:
                    yield connection
                    if self._stop.is_set():
                        self._settle(connection)
                        return
            except psycopg.Error:
                time.sleep(0.5)

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        number = self._rng.randint(1, ROWS)
        last = self.ledger.states[number][-1].n
        self.written += 1
        n = None if last is not None and self._rng.random() < 0.15 else self.written
        state = _State(time.monotonic(), None, n)
        with self.ledger.lock:
            self.ledger.states[number].append(state)
        if n is None:
            connection.execute(f"DELETE FROM {TABLE} WHERE id = %s".encode(), (number,))
        elif last is None:
            connection.execute(f"INSERT INTO {TABLE} VALUES (%s, %s, 'again')".encode(), (number, n))
        else:
            connection.execute(f"UPDATE {TABLE} SET n = %s WHERE id = %s".encode(), (n, number))
        with self.ledger.lock:
            state.acked = time.monotonic()

    def _settle(self, connection: psycopg.Connection[Any]) -> None:
        """Find out what became of statements whose answer was lost, and what a restored database lost."""
        asked = time.monotonic()
        rows = connection.execute(f"SELECT id, n FROM {TABLE}".encode()).fetchall()
        now: dict[int, int] = dict(rows)
        with self.ledger.lock:
            for number, states in self.ledger.states.items():
                if states[-1].acked is None and states[-1].n != now.get(number):
                    states.pop()
                if states[-1].acked is None:
                    states[-1].acked = asked
                elif states[-1].n != now.get(number):
                    states.append(_State(asked, asked, now.get(number)))
