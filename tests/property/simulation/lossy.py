"""A store that loses: its newest writes, a table, everything, or all since a backup of an earlier life."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

from headrace.model.change import Change
from headrace.model.claim import Claim
from headrace.model.errors import SinkError
from headrace.model.key import Key
from headrace.model.life import topic_in
from headrace.model.outcome import Outcome
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema
from sinks.base import Place, Progress, Stored
from sinks.memory import MemorySink, _Row
from tests.property.simulation.store import BAD, DISLIKED, Died

__all__ = ["LossySink", "Shelf", "State"]

_REMEMBERED = 40
_numbers = count(1)


@dataclass(frozen=True)
class State:
    """All that a store holds at one moment.

    Args:
        tables: Its rows.
        progress: What was settled.
        claims: Who writes.
        identities: Of its targets.
        writes: How often each target was written to.
        witnesses: Topic → identity and writes of its target when its progress was stored.
    """

    tables: Mapping[TableId, Mapping[str, tuple[int, _Row]]] = field(default_factory=dict)
    progress: Mapping[Place, int] = field(default_factory=dict)
    claims: Mapping[TableId, Claim] = field(default_factory=dict)
    identities: Mapping[TableId, int] = field(default_factory=dict)
    writes: Mapping[TableId, int] = field(default_factory=dict)
    witnesses: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass
class Shelf:
    """One store, beside its rows.

    Attributes:
        told_apart: Whether it tells the identities of targets; one that does not lets go of the progress
            whose target went back.
        trouble: Table, number of its call and moment at which the driver is to die.
        picky: Whether it refuses bad values.
        away: At so many looks its targets do not show themselves.
        earlier: States as they were after each of the last writes.
    """

    told_apart: bool = True
    trouble: tuple[str, int, str] | None = None
    picky: bool = False
    away: int = 0
    earlier: deque[State] = field(default_factory=lambda: deque([State()], _REMEMBERED))
    identities: dict[TableId, int] = field(default_factory=dict)
    writes: dict[TableId, int] = field(default_factory=dict)
    witnesses: dict[str, tuple[int, int]] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    def expect(self, trouble: tuple[str, int, str] | None) -> None:
        """Let the next driver die there."""
        self.trouble, self.calls = trouble, {}


class LossySink(MemorySink):
    """The reference sink upon a store that somebody else may set back; a table is named as its topic is."""

    kind = "lossy"
    shelves: ClassVar[dict[str, Shelf]] = {}

    @property
    def shelf(self) -> Shelf:
        return self.shelves.setdefault(self.config.store, Shelf())

    # ------------------------------------------------------------ what a driver does

    def prepare(self, schema: TableSchema) -> None:
        if schema.table not in self._store.tables:
            super().prepare(schema)
            self.shelf.identities[schema.table] = next(_numbers)
            self._wrote(schema.table)

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        self._begin(schema)
        middle = len(changes) // 2
        outcomes = self._taken(schema, changes[:middle])
        self._wrote(schema.table)
        self._strike(schema.table.name, "half")
        outcomes += self._taken(schema, changes[middle:])
        self._end(schema)
        return outcomes

    def _taken(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        picky = self.shelf.picky
        liked = [change for change in changes if not (picky and change.row.get("a") == BAD)]
        outcomes = dict(zip((change.key for change in liked), super().apply(schema, liked), strict=True))
        return [outcomes.get(change.key, DISLIKED) for change in changes]

    def rows(self, schema: TableSchema, keys: Sequence[Key]) -> dict[Key, Stored]:
        self._there(schema)
        return super().rows(schema, keys)

    def truncate(self, schema: TableSchema, position: Position) -> int:
        self._begin(schema)
        removed = super().truncate(schema, position)
        self._end(schema)
        return removed

    def settle(self, progress: Progress) -> None:
        self._strike("settle", "before")
        super().settle(progress)
        for life, _ in progress:
            if (witness := self._witness(topic_in(life))) is not None:
                self.shelf.witnesses[topic_in(life)] = witness
        self._keep()
        self._strike("settle", "after")

    def progress(self, places: Collection[Place] | None = None) -> Progress:
        stored = super().progress(places)
        return stored if self.shelf.told_apart else {p: end for p, end in stored.items() if self._has_it(p)}

    def identities(self, schemas: Sequence[TableSchema]) -> dict[TableId, str] | None:
        if not self.shelf.told_apart:
            return None
        if self.shelf.away:
            self.shelf.away -= 1
            return {}
        known = self.shelf.identities
        return {schema.table: str(known[schema.table]) for schema in schemas if schema.table in known}

    # ------------------------------------------------------------ what is lost

    @property
    def state(self) -> State:
        """What the store holds now."""
        store, shelf = self._store, self.shelf
        return State(
            {table: dict(rows) for table, rows in store.tables.items()},
            dict(store.progress),
            dict(store.claims),
            dict(shelf.identities),
            dict(shelf.writes),
            dict(shelf.witnesses),
        )

    def has(self, table: TableId) -> bool:
        """Return whether a table's target is there."""
        return table in self._store.tables

    def set_back(self, state: State) -> None:
        """Let the store be as it was."""
        store, shelf = self._store, self.shelf
        store.tables = {table: dict(rows) for table, rows in state.tables.items()}
        store.progress, store.claims = dict(state.progress), dict(state.claims)
        shelf.identities, shelf.writes = dict(state.identities), dict(state.writes)
        shelf.witnesses = dict(state.witnesses)
        self.harden()

    def lose_writes(self, some: int) -> None:
        """Lose the newest writes."""
        earlier = self.shelf.earlier
        self.set_back(earlier[max(0, len(earlier) - 1 - some)])

    def lose_table(self, table: TableId, restored: int | None = None) -> None:
        """Lose a table, or all that was written to it since some writes ago, and nothing else."""
        earlier, store = self.shelf.earlier, self._store
        then = earlier[max(0, len(earlier) - 1 - restored)].tables if restored is not None else {}
        store.tables.pop(table, None)
        self.shelf.identities.pop(table, None)
        if restored is None:
            store.claims.pop(table, None)
        elif table in then:
            store.tables[table] = dict(then[table])
            self.shelf.identities[table] = next(_numbers)
        self.harden()

    def harden(self) -> None:
        """Forget the states of before: what was lost does not come back, and nothing else is lost."""
        self.shelf.earlier.clear()
        self._keep()

    # ------------------------------------------------------------ inside

    def _begin(self, schema: TableSchema) -> None:
        self._there(schema)
        name = schema.table.name
        self.shelf.calls[name] = self.shelf.calls.get(name, 0) + 1
        self._strike(name, "before")

    def _end(self, schema: TableSchema) -> None:
        self._wrote(schema.table)
        self._strike(schema.table.name, "after")

    def _there(self, schema: TableSchema) -> None:
        if schema.table not in self._store.tables:
            raise SinkError("The target is gone.", code="TARGET_GONE", table=schema.table)

    def _strike(self, name: str, moment: str) -> None:
        shelf = self.shelf
        if shelf.trouble == (name, shelf.calls.get(name, 1), moment):
            shelf.trouble = None
            raise Died

    def _wrote(self, table: TableId) -> None:
        self.shelf.writes[table] = self.shelf.writes.get(table, 0) + 1
        self._keep()

    def _keep(self) -> None:
        self.shelf.earlier.append(self.state)

    def _witness(self, topic: str) -> tuple[int, int] | None:
        table = TableId("public", topic)
        known = self.shelf.identities.get(table)
        return None if known is None else (known, self.shelf.writes[table])

    def _has_it(self, place: Place) -> bool:
        """Return whether the target is the one whose progress was stored, and none that went back since."""
        topic = topic_in(place[0])
        then, now = self.shelf.witnesses.get(topic), self._witness(topic)
        return then is not None and now is not None and then[0] == now[0] and then[1] <= now[1]
