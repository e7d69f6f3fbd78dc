"""The order of changes, defined once.

A change's position is ``(epoch, offset)``: the Kafka offset in its key's partition within one
incarnation of the topic. Larger wins, per key, in every sink. LSNs, transaction ids and clocks never
order data: an LSN is not monotone per key (see docs/adr/0002).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EPOCH_BITS", "MAX_EPOCH", "MAX_OFFSET", "OFFSET_BITS", "Position"]

OFFSET_BITS = 44
EPOCH_BITS = 63 - OFFSET_BITS
MAX_OFFSET = (1 << OFFSET_BITS) - 2
MAX_EPOCH = (1 << EPOCH_BITS) - 1


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A point in one key's history, totally ordered by ``(epoch, offset)``.

    Args:
        epoch: Incarnation of the topic, ``0 … MAX_EPOCH``; rises when offsets start over.
        offset: Kafka offset, ``0 … MAX_OFFSET``.
    """

    epoch: int
    offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.epoch <= MAX_EPOCH:
            raise ValueError(f"epoch {self.epoch} is outside 0..{MAX_EPOCH}")
        if not 0 <= self.offset <= MAX_OFFSET:
            raise ValueError(f"offset {self.offset} is outside 0..{MAX_OFFSET}")

    @property
    def version(self) -> int:
        """Return the position as one positive 63-bit integer that keeps the order; never 0."""
        return self.epoch << OFFSET_BITS | (self.offset + 1)

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
        epoch, low = version >> OFFSET_BITS, version & ((1 << OFFSET_BITS) - 1)
        if low == 0:
            raise ValueError(f"{version} is no position: its offset part is 0")
        return cls(epoch, low - 1)
