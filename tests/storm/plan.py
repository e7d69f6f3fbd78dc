"""What a storm does, decided by its seed before it begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

__all__ = ["Plan", "Strike", "draw"]

_SHORTEST_S, _LONGEST_S = 0.5, 6.0


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault.

    Args:
        action: Its name in :data:`tests.storm.actions.ACTIONS`.
        after_s: Seconds after the fault before it.
        seed: For the choices the fault makes itself.
    """

    action: str
    after_s: float
    seed: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole storm.

    Args:
        seed: What it was drawn from.
        rate: Row changes per second of the shop's people.
        strikes: The faults in their order.
        spare: Those that strike as well, in their order, for each that has found nothing to do.
    """

    seed: int
    rate: float
    strikes: Sequence[Strike]
    spare: Sequence[Strike] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return asdict(self)


def draw(seed: int, faults: int, weights: Mapping[str, int]) -> Plan:
    """Return the plan of a seed: the same for the same seed, number of faults and actions.

    Args:
        seed: Any integer.
        faults: How many faults.
        weights: Action → how often it is drawn compared with others.
    """
    rng = Random(f"storm/{seed}")
    strikes = _drawn(rng, faults, weights)
    rate = float(rng.choice((40, 100, 200)))
    return Plan(seed, rate, strikes, spare=_drawn(rng, faults, weights))


def _drawn(rng: Random, faults: int, weights: Mapping[str, int]) -> tuple[Strike, ...]:
    names = sorted(weights)
    chosen = rng.choices(names, [weights[name] for name in names], k=faults)
    return tuple(
        Strike(name, round(rng.uniform(_SHORTEST_S, _LONGEST_S), 1), rng.randrange(2**31)) for name in chosen
    )
