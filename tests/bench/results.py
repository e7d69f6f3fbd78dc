"""What a benchmark yields: sides measured in turn in one sitting, a line of JSON each."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Result", "Side", "Spread"]

_RATES = frozenset({"rows/s", "changes/s", "MiB/s"})


@dataclass(frozen=True, slots=True)
class Spread:
    """Several runs of one thing: the median, the smallest and the largest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Return the spread of at least one sample."""
        return cls(statistics.median(samples), min(samples), max(samples))


@dataclass(frozen=True, slots=True)
class Side:
    """One way of doing the work.

    Args:
        samples: One figure per run that counts; run *i* was measured beside run *i* of the other sides.
        processor_s: Process → CPU seconds per million changes.
        peak_mib: Process → peak resident memory.
    """

    samples: tuple[float, ...]
    processor_s: Mapping[str, float] = field(default_factory=dict)
    peak_mib: Mapping[str, float] = field(default_factory=dict)

    @property
    def spread(self) -> Spread:
        """Return the spread of the samples."""
        return Spread.of(self.samples)


@dataclass(frozen=True, slots=True)
class Result:
    """One question and what each side answered.

    Args:
        name: Dotted and stable, e.g. ``apply.redis.json.new``; figures of two runs are compared by it.
        what: What was done, in a sentence for readers.
        unit: Of the samples. A rate is better when it is larger, anything else when it is smaller.
        sides: By name; ours is ``headrace``.
        equal: Whether all content was compared at the end and was the same; None where nothing is written.
        failure: Why the figures do not count: rows that differ, a peer that could not be had.
        versions: What took part → its version.
        settings: What a reader would have to know to do it again.
    """

    name: str
    what: str
    unit: str
    sides: Mapping[str, Side] = field(default_factory=dict)
    equal: bool | None = None
    failure: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Return whether the figures may be shown: nothing failed and nothing was found to differ."""
        return self.failure is None and self.equal is not False

    def ratio(self, one: str, other: str) -> Spread:
        """Return how much better ``one`` is than ``other``, run by run: 2 is twice as fast."""
        pairs = zip(self.sides[one].samples, self.sides[other].samples, strict=True)
        if self.unit in _RATES:
            return Spread.of([a / b for a, b in pairs])
        return Spread.of([b / a for a, b in pairs])

    def as_dict(self) -> dict[str, Any]:
        """Return the result for JSON, with the spread of each side."""
        told = asdict(self)
        for name, side in self.sides.items():
            told["sides"][name]["spread"] = asdict(side.spread)
        return told

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Result:
        """Invert :meth:`as_dict`."""
        sides = {
            name: Side(tuple(side["samples"]), side["processor_s"], side["peak_mib"])
            for name, side in told["sides"].items()
        }
        return cls(**{**told, "sides": sides})
