"""What stores and Kafka may lose, in any order, runs and new lives between, and what has to hold.

After a look at a store, a table that is not said to be in trouble equals the source as far as its topic tells
(I1). At rest, every table does, or its trouble is told by a code that is true of it; what is told to be done
about it then makes the table equal, and the trouble is over (I6). What a run has swept stays swept, and what
a life has left behind stays away, whatever is restored.

Not modelled: several partitions, shadows, time; records that Kafka loses before anybody has applied them, so
soon after it that no look at the topic came between, or while a recovery is under way; a store that loses
nothing but the removal of an earlier life's rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count as counted
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headrace.config.pipeline import PipelineSpec, SchemaPolicy
from headrace.model.errors import SinkError
from headrace.model.life import life_of
from headrace.model.position import Position
from sinks.contract.story import state
from sinks.registry import KINDS
from spark_jobs.apply import forget_sinks
from tests.property.simulation.engine import Engine, without_time
from tests.property.simulation.kafka import PLACEHOLDER
from tests.property.simulation.lossy import LossySink, State
from tests.property.simulation.mirrored import Mirrored
from tests.property.simulation.store import BAD

__all__ = ["Losses"]

_ROUNDS = 60
_ANEW = {"KAFKA_WENT_BACK", "TOPIC_RECREATED"}
"""What only a new life mends."""

_MEMORY = Path("/dev/shm")
_FOLDER = _MEMORY if _MEMORY.is_dir() else None

WHICH = st.integers(0, 1)
KEYS = st.integers(1, 6)
WORK = st.lists(
    st.tuples(
        WHICH,
        st.sampled_from(
            ["write", "touch", "bare move"] * 4
            + ["delete"] * 3
            + ["move", "copy", "truncate", "unseen delete", "unseen write"]
        ),
        KEYS,
        KEYS,
        st.sampled_from(["x", "y", "x", "y", BAD]),
    ),
    max_size=8,
)
COUNTS = st.integers(1, 8) | st.just(1000)
DEATHS = st.none() | st.tuples(
    st.sampled_from(["t0", "t1"]), st.integers(1, 2), st.sampled_from(["before", "half", "after"])
)
SETTLING = st.tuples(st.just("settle"), st.just(1), st.sampled_from(["before", "after"]))
SOME = st.integers(1, 12)

_stores = counted(1)


class Losses(RuleBasedStateMachine):
    """Two tables, their topics, one sink's query, and a store that may lose anything."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._patch.setitem(KINDS, "lossy", f"{LossySink.__module__}:{LossySink.__name__}")
        self._folder = tempfile.TemporaryDirectory(dir=_FOLDER)
        self._epochs = counted(1)
        epoch = next(self._epochs)
        self.tables = [Mirrored(f"t{number}", epoch) for number in range(2)]
        self._name = f"lossy{next(_stores)}"
        topics = {table.name: table.topic for table in self.tables}
        without_time(self._patch, topics)
        self.store = LossySink("cache", LossySink.Config(store=self._name))
        for table in self.tables:
            self.store.prepare(table.schema)
        self.engine = Engine(Path(self._folder.name), self.spec(), topics)
        self.backup: State | None = None
        self.recovering: dict[str, int] | None = None

    def spec(self) -> PipelineSpec:
        folder = Path(self._folder.name)
        return PipelineSpec(
            sink="cache",
            kind="lossy",
            settings={"store": self._name},
            source="shop",
            kafka_bootstrap="127.0.0.1:1",
            placeholder=PLACEHOLDER,
            tables=tuple(table.spec for table in self.tables),
            checkpoint=folder / "checkpoint",
            dead_letters=folder / "letters",
            owner=folder / "owner.json",
            home="here",
            on_schema_change=SchemaPolicy.LENIENT,
            max_offsets_per_trigger=10,
        )

    def teardown(self) -> None:
        try:
            self.come_to_rest()
        finally:
            self._patch.undo()
            self._folder.cleanup()
            forget_sinks()
            LossySink.shelves.pop(self._name, None)

    @initialize(told_apart=st.booleans(), rows=st.sets(KEYS))
    def begin(self, told_apart: bool, rows: set[int]) -> None:
        self.store.shelf.told_apart = told_apart
        for table in self.tables:
            table.connector.committed(table.database.put(0, sorted(rows), "x"))

    # ------------------------------------------------------------ what goes on

    @rule(work=WORK, count=COUNTS, death=DEATHS | SETTLING)
    def work_and_deliver(
        self, work: list[tuple[int, str, int, int, str]], count: int, death: tuple[str, int, str] | None
    ) -> None:
        """Run a batch; its driver may die at one table's writes, or when it settles."""
        for which, what, key, other, a in work:
            self.tables[which].state(what, key, other, a)
        self.store.shelf.expect(death)
        self.engine.deliver(count)
        self.store.shelf.expect(None)

    @rule(death=DEATHS)
    def look(self, death: tuple[str, int, str] | None) -> None:
        """Look at the store, bring a part of it forward; what is said then has to be so."""
        self.store.shelf.expect(death)
        proven = self.engine.look()
        self.store.shelf.expect(None)
        if proven and self.recovering is None:
            for table in self.tables:
                if self.is_called_whole(table):
                    self.see_that_it_is(table)

    @rule(which=WHICH, again=st.integers(1, 6))
    def restart(self, which: int, again: int) -> None:
        """A connector and the driver die at once."""
        self.tables[which].connector.restart(again)
        self.engine.start()

    # ------------------------------------------------------------ what is lost

    @rule(some=SOME, work=WORK)
    def lose_writes(self, some: int, work: list[tuple[int, str, int, int, str]]) -> None:
        self.store.lose_writes(some)
        self.work_and_deliver(work, 3, None)

    @rule(which=WHICH, restored=st.none() | SOME)
    def lose_table(self, which: int, restored: int | None) -> None:
        self.store.lose_table(self.tables[which].schema.table, restored)

    @rule()
    def lose_everything(self) -> None:
        self.store.set_back(State())

    @rule()
    def back_up_or_restore(self) -> None:
        """The backup may be of an earlier life."""
        if self.backup is None:
            self.backup = None if self.recovering is not None else self.store.state
        else:
            self.store.set_back(self.backup)
            self.backup = None

    @rule(which=WHICH, first=st.integers(1, 30))
    def trim(self, which: int, first: int) -> None:
        """Retention takes the oldest records, and not those that still tell of another loss."""
        table = self.tables[which]
        if self.engine.settled(table.name) and not table.lost & _ANEW:
            table.topic.trim(min(first, len(table.topic.records)))
            table.lost.add("KAFKA_DATA_LOST")

    @precondition(lambda self: self.recovering is None)
    @rule(which=WHICH, back=st.integers(1, 6), work=WORK)
    def cut(self, which: int, back: int, work: list[tuple[int, str, int, int, str]]) -> None:
        """Kafka loses records that were applied; others may be written in their place."""
        table = self.tables[which]
        end = self.engine.noted(table.name) + 1 - back
        if end >= table.topic.first:
            table.topic.cut(end)
            table.lost.add("KAFKA_WENT_BACK")
            table.run = None
            for _, what, key, other, a in work:
                table.state(what, key, other, a)

    @precondition(lambda self: self.recovering is None)
    @rule(which=WHICH)
    def make_anew(self, which: int) -> None:
        table = self.tables[which]
        if self.engine.settled(table.name):
            table.make_anew()
            table.lost |= _ANEW
            table.run = None

    # ------------------------------------------------------------ what people do about it

    @rule(which=WHICH, gone=st.sets(KEYS), wait=st.booleans())
    def run_or_finish(self, which: int, gone: set[int], wait: bool) -> None:
        """Read a table anew, from which rows have gone unseen, or sweep it when that is applied."""
        table = self.tables[which]
        if table.run is None and not self.is_shut(table):
            for key in sorted(gone):
                table.state("unseen delete", key, key, "x")
            table.begin_run()
            if wait:
                self.settle(partial(self.is_finished, table))
        else:
            self.is_finished(table)

    @rule(picky=st.booleans(), death=DEATHS | SETTLING)
    def mend_and_replay(self, picky: bool, death: tuple[str, int, str] | None) -> None:
        """Let the store take every value, or refuse some from now on; letters are replayed in between."""
        self.store.shelf.picky = False
        self.store.shelf.expect(death)
        self.engine.replay()
        self.store.shelf.expect(None)
        self.store.shelf.picky = picky

    @rule(wait=st.booleans())
    def recover_or_finish(self, wait: bool) -> None:
        """Begin a new life, or remove what the last one left when this one is applied."""
        if self.recovering is None:
            self.begin_life()
            if wait:
                self.settle(self.is_recovered)
        else:
            self.finish_life()

    def begin_life(self) -> None:
        epoch = next(self._epochs)
        for table in self.tables:
            table.begin_life(epoch)
            self.store.prepare(table.schema)
        self.store.forget([table.name for table in self.tables])
        self.engine.begin_life(self.spec())
        self.recovering = {table.name: len(table.topic.records) for table in self.tables}

    def finish_life(self) -> None:
        ends = self.recovering or {}
        stored = self.store.progress()
        lives = {table.name: life_of(table.name, table.topic.identity) for table in self.tables}
        if all(
            self.engine.told_offset(name) >= end and stored.get((lives[name], 0), -1) >= end - 1
            for name, end in ends.items()
        ):
            with suppress(SinkError):  # a target is gone, and is made anew first
                for table in self.tables:
                    # Of an empty table nobody has missed the target yet.
                    if table.topic.records or self.store.has(table.schema.table):
                        self.store.truncate(table.schema, Position(table.epoch, 0))
                self.removed(empty=not all(table.topic.records for table in self.tables))
                self.recovering = None

    # ------------------------------------------------------------ what has to hold

    @rule()
    def come_to_rest(self) -> None:
        """All is told, delivered and looked at; then what is told to be wrong is mended as it says."""
        self.store.shelf.picky = False
        # Where a target is gone and its topic, too, nobody can.
        self.settle(lambda: self.engine.replay() or any(map(self.is_shut, self.tables)))
        if self.recovering is not None:
            self.settle(self.is_recovered)
        told = {table.name: self.engine.told_trouble(str(table.schema.table)) for table in self.tables}
        for table in self.tables:
            assert told[table.name] in {"", *table.lost}, f"{table.name} is said to be {told[table.name]}"
            if self.is_called_whole(table):
                self.see_that_it_is(table)
        if _ANEW & set(told.values()):
            self.begin_life()
            self.settle(self.is_recovered)
        for table in self.tables:
            if not self.is_called_whole(table):
                table.begin_run()
                self.settle(partial(self.is_finished, table))
        for table in self.tables:
            assert self.is_called_whole(table), self.engine.told_trouble(str(table.schema.table))
            self.see_that_it_is(table)

    def is_recovered(self) -> bool:
        self.finish_life()
        return self.recovering is None

    def is_finished(self, table: Mirrored) -> bool:
        if table.run is not None and self.engine.finish_run(table.name, *table.run):
            table.run = None
        return table.run is None

    def removed(self, *, empty: bool) -> None:
        """Take note that a life's rows are gone, after which nothing may have been read."""
        self.store.harden()
        self.backup = None if empty else self.backup

    def settle(self, done: Callable[[], bool]) -> None:
        """Deliver and look until there is nothing left to do."""
        quiet = 0
        for _ in range(_ROUNDS):
            delivered, proven = self.engine.deliver(1000), self.engine.look()
            quiet = quiet + 1 if delivered and proven and done() and self.is_at_rest() else 0
            if quiet > 1:
                return
        raise AssertionError("the sink does not come to rest")

    def is_at_rest(self) -> bool:
        for table in self.tables:
            told = self.engine.told_trouble(str(table.schema.table))
            if told not in _ANEW and self.engine.told_offset(table.name) < len(table.topic.records):
                return False
        return True

    def is_shut(self, table: Mirrored) -> bool:
        """Return whether nothing but a new life is of use to a table, as far as Kafka is concerned."""
        return bool(table.lost & _ANEW)

    def is_called_whole(self, table: Mirrored) -> bool:
        """Return whether nothing is said against a table, and its sink says to have all of its topic."""
        name = str(table.schema.table)
        return (
            not self.engine.told_trouble(name)
            and not self.engine.told_behind(name)
            and not table.unseen
            and table.run is None
            and self.engine.told_offset(table.name) == len(table.topic.records)
        )

    def see_that_it_is(self, table: Mirrored) -> None:
        shown = {key: row for key, (row, _) in state(self.store, table.schema).items()}
        assert shown == table.wanted(), f"{table.name} differs and nobody says so"
