"""The envelope: one change of one row, and the records that are not changes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from headrace.model.key import Key
from headrace.model.position import Position
from headrace.model.schema import TableId

__all__ = ["Change", "Ignored", "Op", "Origin", "Poison", "Record", "Truncate", "collapse"]


class Op(str, Enum):
    """What the row's new state is."""

    UPSERT = "upsert"
    DELETE = "delete"


class Origin(Struct, frozen=True, gc=False):
    """Where a record came from: its identity for the dead letter queue, and metadata for readers.

    Args:
        topic, partition, offset: The record's identity in Kafka.
        lsn: Postgres LSN of the change as an integer, when known. Never an order.
        tx: Transaction id, when known.
        committed_ms: Commit time, Unix milliseconds by the source's clock, when known.
        snapshot: True for rows read by a snapshot rather than streamed.
    """

    topic: str
    partition: int
    offset: int
    lsn: int | None = None
    tx: int | None = None
    committed_ms: int | None = None
    snapshot: bool = False


class Change(Struct, frozen=True, gc=False):
    """The newest state of one row.

    Args:
        table: Which table.
        key: Which row.
        op: Upsert or delete.
        row: Column name → logical value (see :class:`LogicalType`); empty for a delete.
        absent: Columns whose value the source did not send (unchanged TOAST). They are not in
            ``row``: a partial image cannot be mistaken for a full one.
        position: The order within the key's history.
        origin: Where it came from.
    """

    table: TableId
    key: Key
    op: Op
    row: Mapping[str, Any]
    absent: frozenset[str]
    position: Position
    origin: Origin

    def __post_init__(self) -> None:
        if self.op is Op.DELETE and (self.row or self.absent):
            raise ValueError("a delete carries no row")

    def filled(self, values: Mapping[str, Any]) -> Change:
        """Return the change with those of its absent columns that ``values`` has."""
        found = {name: values[name] for name in self.absent if name in values}
        if not found:
            return self
        return replace(self, row={**self.row, **found}, absent=self.absent - found.keys())

    @property
    def partial(self) -> bool:
        """Return whether some columns keep the value the sink already has."""
        return bool(self.absent)


class Truncate(Struct, frozen=True, gc=False):
    """All rows of a table older than ``position`` are gone."""

    table: TableId
    position: Position
    origin: Origin


class Ignored(Struct, frozen=True, gc=False):
    """A record with nothing to apply: a Kafka tombstone, a heartbeat, a signal."""

    origin: Origin
    why: str


class Poison(Struct, frozen=True, gc=False):
    """A record that is no change; it goes to the dead letter queue with its raw bytes.

    Args:
        origin: Where it came from.
        code, reason: What is wrong with it.
        key: The row it is about, when it tells.
    """

    origin: Origin
    code: str
    reason: str
    key: Key | None = None


Record = Change | Truncate | Ignored | Poison


def collapse(older: Change, newer: Change) -> Change:
    """Return one change with the effect of applying ``older``, then ``newer``.

    Both belong to the same key and ``newer.position`` is larger. Columns that ``newer`` does not
    carry are taken from ``older``; when ``older`` is a delete they cannot be, and stay absent.
    """
    if newer.op is Op.DELETE or not newer.absent or older.op is Op.DELETE:
        return newer
    return newer.filled(older.row)
