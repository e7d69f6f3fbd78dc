"""The reference sink: what applying changes means, without a store in the way.

Every other sink has to end in the state this one ends in. It keeps tombstones for ever, because here
nothing forces it to forget.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from headrace.model.change import Change, Op
from headrace.model.claim import Claim
from headrace.model.finding import Finding
from headrace.model.key import Key
from headrace.model.life import is_among
from headrace.model.outcome import APPLIED, ROW_MISSING, STALE, Outcome, Rejected
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema
from headrace.model.values import canonical_row
from sinks.base import Place, Progress, Stored, Target
from sinks.shadow import SHADOW, ShadowName, serving_config, switch

__all__ = ["MemorySink"]

_Row = Mapping[str, Any] | None


class _Config(BaseModel):
    """Settings: ``store`` names the process-wide store, so that two sinks can share one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: str = "default"
    shadow: ShadowName = ""


@dataclass(slots=True)
class _Store:
    tables: dict[TableId, dict[str, tuple[int, _Row]]] = field(default_factory=dict)
    progress: dict[tuple[str, int], int] = field(default_factory=dict)
    claims: dict[TableId, Claim] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemorySink:
    """Mirrors tables in dictionaries: key id → (version, row, or None for a deleted row).

    It lives as long as the process; useful as the model in property tests and to try a pipeline.
    """

    kind: str = "memory"
    placement: str = "driver"
    pace_s: float = 0.0
    rows_at_once: int = 5_000
    Config: ClassVar[type[_Config]] = _Config
    _stores: ClassVar[dict[tuple[str, str], _Store]] = {}

    def __init__(self, name: str, config: _Config | None = None) -> None:
        self.name = name
        self.config = config or _Config()
        self._store = self._stores.setdefault((self.config.store, self.config.shadow), _Store())

    def check(self, schemas: Sequence[TableSchema] = ()) -> list[Finding]:
        del schemas
        message = "The memory sink forgets everything when its process ends."
        return [Finding.warning("MEMORY_FORGETS", message, "Use it for tests only.")]

    def prepare(self, schema: TableSchema) -> None:
        self._store.tables.setdefault(schema.table, {})

    def exists(self, schema: TableSchema) -> bool:
        return schema.table in self._store.tables

    def target(self, schema: TableSchema) -> Target:
        return Target(schema.table, {"store": self.config.store, SHADOW: self.config.shadow})

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        rows = self._store.tables[schema.table]
        return [self._apply(schema, rows, change) for change in changes]

    def rows(self, schema: TableSchema, keys: Sequence[Key]) -> dict[Key, Stored]:
        stored = self._store.tables[schema.table]
        found = ((key, *stored.get(key.id, (0, None))) for key in keys)
        return {key: Stored(key.id, row, version) for key, version, row in found if row is not None}

    @staticmethod
    def _apply(schema: TableSchema, rows: dict[str, tuple[int, _Row]], change: Change) -> Outcome:
        version, stored = rows.get(change.key.id, (0, None))
        if change.position.version < version:
            return STALE
        if change.op is Op.DELETE:
            rows[change.key.id] = (change.position.version, None)
            return APPLIED
        row = dict(change.row)
        if change.partial:
            if stored is None:
                return ROW_MISSING
            row |= {name: stored.get(name) for name in change.absent}
        try:
            canonical_row(schema, row)
        except (ArithmeticError, TypeError, ValueError) as error:
            return Rejected("MEMORY_VALUE", f"A value is none of its column's type: {type(error).__name__}.")
        rows[change.key.id] = (change.position.version, row)
        return APPLIED

    def truncate(self, schema: TableSchema, position: Position) -> int:
        rows = self._store.tables[schema.table]
        older = [
            key
            for key, (version, row) in rows.items()
            if row is not None and position.floor <= version < position.version
        ]
        rows.update(dict.fromkeys(older, (position.version, None)))
        return len(older)

    def count(self, schema: TableSchema, position: Position | None = None) -> int:
        versions = [stored.version for stored in self.scan(schema)]
        if position is None:
            return len(versions)
        return sum(position.floor <= version < position.version for version in versions)

    def progress(self, places: Collection[Place] | None = None) -> Progress:
        stored = self._store.progress
        return {place: stored[place] for place in stored if places is None or place in places}

    def identities(self, schemas: Sequence[TableSchema]) -> dict[TableId, str] | None:
        return None

    def settle(self, progress: Progress) -> None:
        self._store.progress.update(progress)

    def claims(self, schemas: Sequence[TableSchema]) -> dict[TableId, Claim]:
        known = self._store.claims
        return {schema.table: known[schema.table] for schema in schemas if schema.table in known}

    def claim(
        self, schemas: Sequence[TableSchema], claim: Claim, instead_of: Mapping[TableId, Claim]
    ) -> list[TableId]:
        with self._store.lock:
            known = self.claims(schemas)
            lost = [s.table for s in schemas if known.get(s.table) != instead_of.get(s.table)]
            self._store.claims.update((s.table, claim) for s in schemas if s.table not in lost)
            return lost

    def scan(self, schema: TableSchema) -> Iterator[Stored]:
        for key, (version, row) in list(self._store.tables.get(schema.table, {}).items()):
            if row is not None:
                yield Stored(key, dict(row), version)

    def drop(self, schema: TableSchema) -> None:
        self._store.tables.pop(schema.table, None)
        self._store.claims.pop(schema.table, None)

    def switch(self, schema: TableSchema) -> None:
        serving = MemorySink(self.name, serving_config(self.config))
        mine, theirs = self._store.tables, serving._store.tables

        def move() -> None:
            stones = {key: stone for key, stone in theirs.get(schema.table, {}).items() if stone[1] is None}
            rows = mine[schema.table]
            older = {key: stone for key, stone in stones.items() if stone[0] > rows.get(key, (0, None))[0]}
            theirs[schema.table] = {**rows, **older}
            self.drop(schema)

        switch(serving, self, schema, settled=self.progress(), filled=schema.table in mine, move=move)

    def forget(self, topics: Collection[str]) -> None:
        for place in [place for place in self._store.progress if is_among(place[0], topics)]:
            del self._store.progress[place]

    def maintain(self, seconds: float, leave: Collection[TableId] = ()) -> bool:
        return False

    def close(self) -> None:
        """Nothing to release; the store stays."""
