"""What may happen to the chain, in any order, and what has to hold all along and at rest.

All along no row goes back in its history (I2, I3), what is settled is shown (I5), and a row that differs
though everything was delivered is known to be behind (I4, I12), also when a driver that slept wakes late and
goes on (I11). At rest, with the store mended and the letters replayed, the store equals the source (I1, I6).

Not modelled: several partitions, which test_partitions.py has; partial images that two drivers merge at the
very same moment; a late driver that writes the checkpoint; a connector that repeats a key change which leaves
out the large value when the old key is in use again; a store that defers single rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import count as counted
from pathlib import Path
from typing import ClassVar, Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.model.change import Change
from headrace.model.errors import SinkWentBack
from headrace.model.key import Key
from headrace.model.position import Position
from headrace.model.values import canonical_row, key_of
from sinks.base import Sink
from sinks.contract.story import state
from spark_jobs.held import BEHIND
from tests.property.simulation.driver import SEAMS, Query
from tests.property.simulation.kafka import Connector
from tests.property.simulation.promise import Promise
from tests.property.simulation.source import SCHEMA, Database, Event
from tests.property.simulation.store import BAD, DISLIKED, Died, Frail, Trouble, be_unavailable, die

__all__ = ["Chain", "Place"]

KEYS = st.integers(1, 4)
MANY = range(4, 12)
TEXTS = st.sampled_from(["x", "y", BAD])
SESSIONS = st.sampled_from([0, 0, 0, 1, 2])
STATEMENTS = st.tuples(
    st.sampled_from(
        ["write", "touch", "bare move", "delete", "move", "commit", "copy", "roll back", "truncate"]
        + ["write", "touch", "bare move"] * 4
        + ["delete", "commit"] * 2
    ),
    SESSIONS,
    KEYS,
    KEYS,
    TEXTS,
)
WORK = st.lists(STATEMENTS, max_size=8)
COUNTS = st.integers(1, 8) | st.just(1000)

Statement = tuple[str, int, int, int, str]
MOMENTS = st.tuples(st.integers(1, 3), st.sampled_from(["before", "half", "after"]))
DEATHS = st.none() | MOMENTS | st.sampled_from(SEAMS)


class Place(Protocol):
    """A store that programs are run over, one after the other."""

    def sinks(self, epoch: int) -> tuple[Sink, Sink]:
        """Return two sinks upon the same store, as two processes have them; the store is as if empty."""
        ...


class Chain(RuleBasedStateMachine):
    """A table, its topic, drivers that may die or sleep anywhere, and a store.

    Attributes:
        place: The store.
    """

    place: ClassVar[Place]
    epochs: ClassVar[Iterator[int]] = counted(1)

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.epoch = next(self.epochs)
        self.sink, second = self.place.sinks(self.epoch)
        self.store, self.second = Frail(self.sink), Frail(second)
        self.database, self.connector = Database(), Connector()
        self.query = Query(self.connector, self.epoch, Path(self._folder.name))
        self.seen: dict[str, int] = {}
        self.promise = Promise(self.query)
        self.touched = False

    def teardown(self) -> None:
        try:
            self.come_to_rest()
        finally:
            self._folder.cleanup()

    # ------------------------------------------------------------ the database

    @initialize(keys=st.sets(KEYS))
    def rows_of_before(self, keys: set[int]) -> None:
        self.database.put(0, sorted(keys), "x")
        self.connector.read(self.database.rows, self.database.lsn)

    def work(self, statements: list[Statement]) -> None:
        """Run statements of sessions that are open side by side."""
        for what, session, key, other, a in statements:
            self.connector.committed(self._state(what, session, key, other, a))

    def _state(self, what: str, session: int, key: int, other: int, a: str) -> list[Event]:
        database = self.database
        match what:
            case "write" | "touch":
                return database.put(session, [key], a, touch=what == "touch")
            case "move" | "bare move":
                return database.move(session, key, other, a, touch=what == "move")
            case "delete":
                return database.delete(session, key)
            case "copy":
                return database.put(session, MANY, a)
            case "truncate":
                return database.truncate(session)
            case "roll back":
                database.roll_back(session)
                return []
            case _:
                return database.commit(session)

    # ------------------------------------------------------------ the connector

    @rule()
    def read_anew(self) -> None:
        """Read all rows; within a pause of the stream they are as old as its beginning."""
        self.connector.read(self.database.rows, self.database.lsn)

    @rule()
    def pause_or_resume(self) -> None:
        if self.connector.streams:
            self.connector.pause(self.database.rows)
        else:
            self.connector.resume()

    @rule(again=st.integers(1, 8))
    def restart_the_connector(self, again: int) -> None:
        self.connector.restart(again)

    # ------------------------------------------------------------ the drivers

    @rule(statements=WORK, count=COUNTS, death=DEATHS)
    def work_and_deliver(
        self, statements: list[Statement], count: int, death: tuple[int, str] | str | None
    ) -> None:
        """Run a batch, that of before if the driver died in it; Kafka gives the same records again."""
        self.work(statements)
        self.deliver(count, death)

    def deliver(self, count: int, death: tuple[int, str] | str | None = None) -> None:
        self.touched = True
        trouble = Trouble(*death, die) if isinstance(death, tuple) else None
        seam = death if isinstance(death, str) else None
        try:
            self.query.run(self.query.plan(count), self.store.expect(trouble), seam)
        except Died:
            return

    @rule(statements=WORK, count=COUNTS, when=MOMENTS)
    def deliver_through_an_outage(
        self, statements: list[Statement], count: int, when: tuple[int, str]
    ) -> None:
        self.work(statements)
        self.touched = True
        self.query.run(self.query.plan(count), self.store.expect(Trouble(*when, be_unavailable)))

    @rule(statements=WORK, count=COUNTS, when=MOMENTS, more=st.lists(st.integers(1, 8), max_size=3))
    def deliver_twice_at_once(
        self, statements: list[Statement], count: int, when: tuple[int, str], more: list[int]
    ) -> None:
        """A driver sleeps in its batch; another runs that batch and goes on; the first one wakes."""
        self.work(statements)
        self.touched = True
        batch = self.query.plan(count)

        def others() -> None:
            for further in [count, *more]:
                self.query.run(self.query.plan(further), self.store.expect(None))

        self.query.apply(batch, self.second.expect(Trouble(*when, others)))
        if self.query.planned != batch:
            with suppress(SinkWentBack):  # a store may refuse who has looked at it before others settled
                self.query.note_progress(batch, self.second.expect(None))

    @precondition(lambda self: self.query.planned is None)
    @rule()
    def replay(self) -> None:
        self.touched = True
        self.query.replay(self.store.expect(None))

    @precondition(lambda self: self.query.planned is None)
    @rule(back=st.integers(1, 12))
    def deliver_the_past_again(self, back: int) -> None:
        """A copy of an old checkpoint: what was settled is delivered once more."""
        self.query.settled = max(0, self.query.settled - back)

    # ------------------------------------------------------------ what has to hold

    @invariant()
    def what_is_shown_is_right(self) -> None:
        if self.touched:
            self.touched = False
            self.look()

    @rule()
    def come_to_rest(self) -> None:
        """Everything is told and delivered, the store is mended, the letters are replayed."""
        self.connector.resume()
        self.store.mended = self.second.mended = True
        self.deliver_all()
        self.query.replay(self.store.expect(None))
        self.look()
        if behind := self.query.behind():
            assert all(self.lost_in_a_move(versions) for versions in behind.values()), behind
            self.read_anew()
            self.deliver_all()
            self.look()
        assert not self.query.behind()
        if self.query.noted is not None:
            sink, progress = self.query.noted  # the lake's sink knows what itself has noted
            assert dict(sink.progress()) == progress
        self.store.mended = self.second.mended = False

    def deliver_all(self) -> None:
        while self.query.settled < len(self.connector.records):
            self.deliver(len(self.connector.records))
        if self.query.planned is not None:
            self.deliver(1)

    def look(self) -> None:
        """Read the store as anybody does and compare with what was seen before and what is promised."""
        shown = state(self.sink, SCHEMA)
        versions = {key: version for key, (_, version) in shown.items()}
        for key, version in versions.items():
            assert version >= self.seen.get(key, 0), f"row {key} went back in its history"
        self.seen |= versions
        behind = self.query.behind().keys()
        self.promise.check(versions, behind)
        if self.all_is_delivered:
            rows = {key: row for key, (row, _) in shown.items()}
            wanted = self.wanted()
            differing = {key for key in rows.keys() | wanted.keys() if rows.get(key) != wanted.get(key)}
            assert differing <= behind, "a row differs and nobody knows"

    @property
    def all_is_delivered(self) -> bool:
        delivered = self.query.settled == len(self.connector.records)
        return self.connector.streams and delivered and self.query.planned is None

    def wanted(self) -> dict[str, dict[str, object]]:
        rows = self.database.rows.values()
        return {key_of(SCHEMA, row).id: canonical_row(SCHEMA, row) for row in rows}

    def lost_in_a_move(self, versions: list[int]) -> bool:
        """Return whether a row lacks what only the row under its old key had, which is gone by now.

        That happens where the move itself was refused, be it by a try that nobody has heard of because its
        driver died, or the row was behind before it moved.
        """
        offsets = {Position.from_version(version).offset for version in versions}
        moves = offsets & self.connector.bare_moves
        disliked = any(map(self._is_disliked, offsets))
        return any(disliked or self._was_behind(offset) for offset in moves)

    def _was_behind(self, move: int) -> bool:
        refused, key = self.query.refused, self._key(move - 1)
        if refused[move] in (DISLIKED.code, BEHIND.code):
            return True
        return any(offset < move and self._key(offset) == key for offset in refused)

    def _is_disliked(self, offset: int) -> bool:
        record = self.query.record(offset)
        return isinstance(record, Change) and record.row.get("a") == BAD

    def _key(self, offset: int) -> Key | None:
        record = self.query.record(offset)
        return record.key if isinstance(record, Change) else None
