"""Rows that are behind: their newest change known to be lost to the sink is in the dead letter queue.

A later change that carries every column makes such a row whole again. One that leaves large values as they
are must not be applied to it: those values may have changed in the rejected record, and nobody would ever
notice. So it is set aside as well, until a whole image comes or the letters are replayed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.config.pipeline import PipelineSpec, write_private
from headrace.model.change import Change
from headrace.model.outcome import Rejected
from headrace.model.position import Position
from spark_jobs.moves import Stay

__all__ = ["BEHIND", "Holds", "forget_earlier", "load_holds", "nameless_row", "save_holds"]

BEHIND = Rejected(
    "ROW_BEHIND",
    "An earlier change of this row is in the dead letter queue, and this one does not carry every column.",
)


def nameless_row(partition: int, offset: int) -> str:
    """Return what stands for the row of a record that does not tell its key; no ``Key.id`` is like it."""
    return f"%record-{partition}-{offset}"


@dataclass
class Holds:
    """What happened to rows that are behind, by table; the sum of two is the same in either order.

    Args:
        held: Table → row → versions of its rejected changes.
        healed: Table → row → version of its newest change that made it whole.
        emptied: Table → floor → version: from the one to below the other a truncate has removed everything.
    """

    held: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    healed: dict[str, dict[str, int]] = field(default_factory=dict)
    emptied: dict[str, dict[str, int]] = field(default_factory=dict)

    def hold(self, table: str, row: str, version: int) -> None:
        """Note a rejected change."""
        versions = self.held.setdefault(table, {}).setdefault(row, [])
        if version not in versions:
            versions.append(version)

    def heal(self, table: str, row: str, version: int) -> None:
        """Note that a row is whole as of ``version``; only noted for rows that are behind."""
        if row in self.held.get(table, ()):
            healed = self.healed.setdefault(table, {})
            healed[row] = max(version, healed.get(row, -1))

    def empty(self, table: str, position: Position) -> None:
        """Note that everything older of the position's partition is gone."""
        self._empty(table, str(position.floor), position.version)

    def _empty(self, table: str, floor: str, version: int) -> None:
        emptied = self.emptied.setdefault(table, {})
        emptied[floor] = max(version, emptied.get(floor, -1))

    def forget(self, table: str) -> None:
        """Forget what was noted of a table."""
        for noted in (self.held, self.healed, self.emptied):
            noted.pop(table, None)

    def missing(self, table: str, row: str) -> set[int]:
        """Return the versions of the changes that the row still lacks."""
        whole = self.healed.get(table, {}).get(row, -1)
        versions = self.held.get(table, {}).get(row, ())
        return {version for version in versions if version > whole and not self._gone(table, version)}

    def _gone(self, table: str, version: int) -> bool:
        emptied = self.emptied.get(table, {})
        return any(int(floor) <= version < below for floor, below in emptied.items())

    def blocks(self, table: str, change: Change, taken: Iterable[Change], stays: Iterable[Stay] = ()) -> bool:
        """Return whether the change may not be applied because it would build on a row that is behind.

        Args:
            table: Its table.
            change: One change per key, as the batch was collapsed.
            taken: The changes that went into the batch; what a row lacks may be among them.
            stays: Keys that its row had before, from under which it is to be filled.
        """
        if change.partial and any(self.missing(table, stay.key.id) for stay in stays):
            return True
        lacks = self.missing(table, change.key.id)
        if not lacks:
            return False
        mine = {c.position.version: c for c in taken if c.key == change.key}
        # Whatever came before a whole image is of no interest; what came after it must be there.
        whole = max((version for version, c in mine.items() if not c.partial), default=-1)
        return any(whole < version < change.position.version and version not in mine for version in lacks)

    def add(self, other: Holds) -> None:
        """Take over what another part of the batch noted."""
        for table, rows in other.held.items():
            for row, versions in rows.items():
                for version in versions:
                    self.hold(table, row, version)
        for table, healed in other.healed.items():
            for row, version in healed.items():
                self.heal(table, row, version)
        for table, emptied in other.emptied.items():
            for floor, version in emptied.items():
                self._empty(table, floor, version)

    def settled(self) -> Holds:
        """Return only what is still behind."""
        left = {
            table: {row: sorted(lacks) for row in rows if (lacks := self.missing(table, row))}
            for table, rows in self.held.items()
        }
        return Holds({table: rows for table, rows in left.items() if rows})

    def counts(self) -> dict[str, int]:
        """Return how many rows of each table are behind."""
        return {table: len(rows) for table, rows in self.settled().held.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready form that :meth:`from_dict` inverts."""
        return {"held": self.held, "healed": self.healed, "emptied": self.emptied}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Holds:
        """Build one from :meth:`as_dict`'s form."""
        return cls(value["held"], value["healed"], value["emptied"])


def load_holds(checkpoint: Path) -> Holds:
    """Return the rows that were behind when the last batch was settled."""
    try:
        return Holds(json.loads(_file(checkpoint).read_text()))
    except FileNotFoundError:
        return Holds()


def save_holds(checkpoint: Path, holds: Holds) -> None:
    """Write what is still behind, durably; writes nothing when nothing has changed."""
    left = holds.settled().held
    if left != load_holds(checkpoint).held:
        write_private(_file(checkpoint), json.dumps(left))


def forget_earlier(spec: PipelineSpec) -> None:
    """Forget what rows lack of an earlier epoch of their topic: a later one tells of every row anew."""
    holds = load_holds(spec.checkpoint)
    for table in spec.tables:
        name = str(table.schema_.table)
        kept = {
            row: [version for version in versions if Position.from_version(version).epoch >= table.epoch]
            for row, versions in holds.held.get(name, {}).items()
        }
        holds.held[name] = {row: versions for row, versions in kept.items() if versions}
    save_holds(spec.checkpoint, holds)


def _file(checkpoint: Path) -> Path:
    return checkpoint / "held.json"
