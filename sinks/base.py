"""What a sink is: the protocol every store fulfils and the facts the engine asks before using one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from headrace.model.change import Change
from headrace.model.claim import Claim
from headrace.model.finding import Finding
from headrace.model.key import Key
from headrace.model.outcome import Outcome
from headrace.model.position import Position
from headrace.model.schema import TableId, TableSchema

__all__ = ["REQUESTS", "Place", "Progress", "Sink", "Stored", "Target"]

Place = tuple[str, int]
"""An incarnation of a topic, as :func:`headrace.model.life.life_of` names it, and a partition of it."""

REQUESTS = -1
"""A partition that no topic has: not how far it is settled, but the newest mark of what people asked for."""

Progress = Mapping[Place, int]
"""``(topic, partition)`` → the offset up to which (inclusive) everything is settled."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One live row as the store gives it back, for comparison and sweeps.

    Args:
        key: The row's id in the store (``Key.id``).
        row: Column name → logical value, spelled as in :class:`~headrace.model.schema.LogicalType`.
        version: The stored position's version.
    """

    key: str
    row: Mapping[str, Any]
    version: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where one table of a sink lives, for others to read with their own clients.

    Args:
        table: The source's table.
        facts: Kind-specific, e.g. ``{"alias": …}``, ``{"key_template": …, "format": …}``, ``{"path": …}``.
    """

    table: TableId
    facts: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Sink(Protocol):
    """One store that mirrors tables.

    Order is per key, by :class:`Position`, never by arrival. Trouble with a record is an
    :class:`Outcome`; only trouble with the store raises (:class:`SinkError`,
    :class:`SinkUnavailable`).
    """

    kind: str
    placement: str
    """``executor``: applied where the partition is read; ``driver``: a table at a time, in the driver."""
    pace_s: float
    """Seconds from the beginning of a small batch to the next while changes keep coming: 0 where a batch
    costs little, more where each leaves something behind, such as a version of a table."""
    rows_at_once: int
    """Of so many rows of a table a call of :meth:`apply` is made while more are coming: few where the store
    works on some while the next are made, many where a call has a large cost of its own."""

    def check(self, schemas: Sequence[TableSchema] = ()) -> list[Finding]:
        """Return what speaks for or against using this store for these tables; changes nothing.

        Called at registration; without tables it is about the store alone.
        """
        ...

    def prepare(self, schema: TableSchema) -> None:
        """Create the table's target when missing; idempotent. Called before any ``apply``.

        Raises:
            SinkError: With ``table`` set: what is there has another shape than the table and cannot be given
                it. A shadow can take its place.
        """
        ...

    def exists(self, schema: TableSchema) -> bool:
        """Return whether there is anything of the table's target, of ours or of others: a row is enough."""
        ...

    def target(self, schema: TableSchema) -> Target:
        """Return where the table lives, in words other clients understand."""
        ...

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        """Apply changes of one table, at most one per key; return one outcome each, in order.

        Applying twice equals once; a change older than what is stored is Stale and changes
        nothing, also after a delete; a partial change keeps the stored values of its absent
        columns. A partial change whose row is not stored is Rejected by name, never half-filled.
        """
        ...

    def rows(self, schema: TableSchema, keys: Sequence[Key]) -> dict[Key, Stored]:
        """Return the stored rows of those keys that are live, as :meth:`scan` would.

        Called before :meth:`apply`, for rows whose key changes: the new row may lack values that only
        the row under the old key still has.
        """
        ...

    def truncate(self, schema: TableSchema, position: Position) -> int:
        """Remove every row stored with a version below ``position.version``; return how many.

        Rows of other partitions stay: only versions from ``position.floor`` on are meant.
        """
        ...

    def count(self, schema: TableSchema, position: Position | None = None) -> int:
        """Return how many rows :meth:`truncate` would remove at that position; without one, all live rows.

        Of the rows at most keys and versions are sent to the caller.
        """
        ...

    def progress(self, places: Collection[Place] | None = None) -> Progress:
        """Return what :meth:`settle` stored beside the data: of these places, or of all when None.

        Of places that are named, what is stored at this very moment. A place of which nothing is stored
        is left out, and so is one whose data is known to have gone back since.
        """
        ...

    def identities(self, schemas: Sequence[TableSchema]) -> dict[TableId, str] | None:
        """Return what tells each table's target from one made or restored in its place later.

        A target that is gone, or from which somebody is known to have removed rows, is left out. What the
        sink's progress does not tell, this does; None where that tells all of it. Asked about once a second.
        """
        ...

    def settle(self, progress: Progress) -> None:
        """Store, beside the data, how far everything is settled. Called once per batch, last.

        Raises:
            SinkWentBack: The store is not as it was at the last :meth:`progress`; said until the next.
        """
        ...

    def claims(self, schemas: Sequence[TableSchema]) -> dict[TableId, Claim]:
        """Return who may write to the targets of these tables; a target nobody claimed is left out.

        What a completed :meth:`claim` of any process said is seen.
        """
        ...

    def claim(
        self, schemas: Sequence[TableSchema], claim: Claim, instead_of: Mapping[TableId, Claim]
    ) -> list[TableId]:
        """Put ``claim`` on targets, each only where ``instead_of`` is what stands there; atomic per target.

        Return the tables whose targets somebody else has claimed meanwhile; those stay as they are.
        Called after :meth:`prepare`; :meth:`drop` removes a target's claim.
        """
        ...

    def scan(self, schema: TableSchema) -> Iterator[Stored]:
        """Yield every live row of the table."""
        ...

    def drop(self, schema: TableSchema) -> None:
        """Remove the table's target and all data in it; with a shadow's, what it was to replace stays."""
        ...

    def switch(self, schema: TableSchema) -> None:
        """Serve readers, from one moment to the next, what this shadow holds of the table.

        Only a sink that was built as a shadow has something to switch (:mod:`sinks.shadow`). Readers find
        the old target until then and the new one after, never neither. Afterwards the serving target has
        the shadow's rows and progress, the tombstones of both and the claim it had; of the shadow nothing
        is left. Called again after an interruption it goes on; called again after it was done, or where
        nothing was ever prepared, it does nothing.

        Nobody may write to the serving target or to the shadow meanwhile.

        Raises:
            SinkError: ``SHADOW_UNSETTLED``: the shadow has rows but has not settled anything, so nobody knows
                how far they go; ``SHADOW_NONE``: this sink is no shadow.
        """
        ...

    def forget(self, topics: Collection[str]) -> None:
        """Remove the stored progress of every incarnation of some topics.

        Called when the sink is removed with its data, or when it begins with another incarnation.
        Progress of other topics stays: another sink may share the place.
        """
        ...

    def maintain(self, seconds: float, leave: Collection[TableId] = ()) -> bool:
        """Tidy up in an idle moment, for about ``seconds`` at most; return whether there is more to do.

        Tables to ``leave`` alone are another writer's.

        Neither readers nor other writers notice. Where there is nothing to do it costs next to nothing.
        """
        ...

    def close(self) -> None:
        """Release connections; idempotent."""
        ...
