"""The order of changes, defined once.

A change's position is ``(epoch, offset)``: the Kafka offset in its key's partition within one
incarnation of the topic. Larger wins, per key, in every sink. LSNs, transaction ids and clocks never
order data: an LSN is not monotone per key (see docs/adr/0002).
"""

from __future__ import annotations

from msgspec import Struct

__all__ = [
    "EPOCH_BITS",
    "MAX_EPOCH",
    "MAX_OFFSET",
    "MAX_PARTITIONS",
    "OFFSET_BITS",
    "PARTITION_BITS",
    "Position",
]

OFFSET_BITS = 39
PARTITION_BITS = 5
EPOCH_BITS = 63 - PARTITION_BITS - OFFSET_BITS
MAX_OFFSET = (1 << OFFSET_BITS) - 2
MAX_PARTITIONS = 1 << PARTITION_BITS
MAX_EPOCH = (1 << EPOCH_BITS) - 1

_EPOCH_SHIFT = PARTITION_BITS + OFFSET_BITS


class Position(Struct, frozen=True, gc=False):
    """A point in one key's history.

    A key stays in one partition for an epoch, so positions of one key are ordered by ``(epoch, offset)``.
    Within an epoch each partition has versions of its own: nothing is said about the order of two
    partitions, and what is removed from one of them by version leaves the others alone.

    Args:
        epoch: Incarnation of the topic, ``0 … MAX_EPOCH``; rises when offsets start over.
        offset: Kafka offset, ``0 … MAX_OFFSET``.
        partition: The key's partition, ``0 … MAX_PARTITIONS - 1``.
    """

    epoch: int
    offset: int
    partition: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.epoch <= MAX_EPOCH:
            raise ValueError(f"epoch {self.epoch} is outside 0..{MAX_EPOCH}")
        if not 0 <= self.offset <= MAX_OFFSET:
            raise ValueError(f"offset {self.offset} is outside 0..{MAX_OFFSET}")
        if not 0 <= self.partition < MAX_PARTITIONS:
            raise ValueError(f"partition {self.partition} is outside 0..{MAX_PARTITIONS - 1}")

    def __lt__(self, other: Position) -> bool:
        return self._order < other._order

    def __le__(self, other: Position) -> bool:
        return self._order <= other._order

    @property
    def _order(self) -> tuple[int, int, int]:
        return self.epoch, self.partition, self.offset

    @property
    def version(self) -> int:
        """Return the position as one positive 63-bit integer that keeps the order; never 0."""
        return self.epoch << _EPOCH_SHIFT | self.partition << OFFSET_BITS | (self.offset + 1)

    @property
    def floor(self) -> int:
        """Return the version from which on all up to this one are of this partition, or of earlier epochs.

        Those of earlier epochs count with the first partition: whatever they were, they are older.
        """
        return self.version - (self.offset + 1) if self.partition else 0

    @property
    def text(self) -> str:
        """Return the version as 19 zero-padded digits, for stores whose numbers are doubles."""
        return str(self.version).zfill(19)

    @classmethod
    def from_version(cls, version: int) -> Position:
        """Invert :attr:`version`.

        Raises:
            ValueError: When ``version`` is not one that :attr:`version` can give.
        """
        high, low = version >> OFFSET_BITS, version & ((1 << OFFSET_BITS) - 1)
        if low == 0:
            raise ValueError(f"{version} is no position: its offset part is 0")
        return cls(high >> PARTITION_BITS, low - 1, high & (MAX_PARTITIONS - 1))
