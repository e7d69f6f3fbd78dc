"""Rounds: all sides write the same batches in turn, and must leave the same content behind each phase."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import permutations
from typing import Any, Protocol

from tests.bench.apply.cpu import Sampler
from tests.bench.apply.products import PHASES, Batches
from tests.bench.meter import Meter, Tally, Used
from tests.bench.results import Result

__all__ = ["Busy", "Differs", "Side", "measure"]

_PAUSE_S = 5.0

_Spent = dict[tuple[str, str], list[Used]]
"""Side and phase → what each batch took."""

_NAMES = {"ours": "headrace"}
"""How the results call a side, where it is not by its own name."""

_WHAT = {
    "insert": "new rows",
    "update": "the same rows, all changed",
    "delete": "deletes of a quarter of the rows",
}


class Side(Protocol):
    """One way of writing, into a target of its own."""

    name: str
    """``ours``; ``guarded``, a raw client that compares versions; ``plain``, one that does not; others."""

    sampler: Sampler | None
    """Where the processor time of its writes goes, if that is asked."""

    def open(self) -> None:
        """Make an empty target."""

    def write(self, phase: str, number: int) -> None:
        """Write a batch. This is what is measured."""

    def content(self) -> dict[str, Any]:
        """Return row key → row, version included, as a reader finds them."""

    def close(self) -> None:
        """Remove the target."""


class Busy(Exception):
    """The store asked for patience: what was measured in this round says nothing."""


class Differs(AssertionError):
    """Two sides that wrote the same hold different rows."""


def measure(store: str, sides: Sequence[Side], work: Batches, runs: int, meter: Meter) -> Iterator[Result]:
    """Yield a result for each phase; a first round, which meets cold code, does not count.

    A phase after which the sides do not hold the same has failed, and the others with it: what was measured
    was not the same work.

    Raises:
        Busy: The store asked for patience in more rounds than were to be measured.
    """
    gc.collect()
    gc.freeze()  # the prepared rows are nobody's garbage
    tallies = {phase: Tally() for phase in PHASES}
    number = lost = 0
    try:
        while number <= runs:
            try:
                spent = _round(sides, work, number, meter)
            except Busy:
                lost += 1
                if lost > runs:
                    raise
                time.sleep(_PAUSE_S)
                continue
            if number:
                _count(tallies, spent, work)
            number += 1
    except Differs as error:
        for phase in PHASES:
            yield _result(store, phase, equal=False, failure=str(error))
        return
    finally:
        gc.unfreeze()
    profile = next((side.sampler.shares() for side in sides if side.sampler), {})
    for phase in PHASES:
        settings = {
            "rows": sum(map(len, work[phase])),
            "batches": len(work[phase]),
            "rounds lost to a busy store": lost,
            "client time of ours": {kind: f"{share:.0%}" for kind, share in profile.items() if share >= 0.01},
        }
        yield _result(store, phase, equal=True, sides=tallies[phase].sides(), settings=settings)


def _result(store: str, phase: str, **found: Any) -> Result:
    return Result(f"apply.{store}.{phase}", f"{_WHAT[phase]}, applied to {store}", "rows/s", **found)


def _count(tallies: Mapping[str, Tally], spent: _Spent, work: Batches) -> None:
    for (name, phase), batches in spent.items():
        side = _NAMES.get(name, name)
        for batch, used in zip(work[phase], batches, strict=True):
            tallies[phase].use(side, len(batch), used)
        rows = sum(map(len, work[phase]))
        tallies[phase].sample(side, rows / sum(used.seconds for used in batches))


def _round(sides: Sequence[Side], work: Batches, number: int, meter: Meter) -> _Spent:
    spent: _Spent = {(side.name, phase): [] for phase in PHASES for side in sides}
    orders = list(permutations(sides))
    try:
        for side in sides:
            side.open()
        for phase in PHASES:
            for batch in range(len(work[phase])):
                # Every order in turn: what one side leaves running in the store slows the next.
                for side in orders[(number * len(work[phase]) + batch) % len(orders)]:
                    used = _measured(side, phase, batch, meter, sampled=number > 0)
                    spent[side.name, phase].append(used)
            _insist_on_equality(sides, phase, work)
    finally:
        for side in sides:
            side.close()
    return spent


def _measured(side: Side, phase: str, batch: int, meter: Meter, *, sampled: bool) -> Used:
    with side.sampler if side.sampler and sampled else nullcontext(), meter.measured() as used:
        side.write(phase, batch)
    return used


def _insist_on_equality(sides: Sequence[Side], phase: str, work: Batches) -> None:
    inserted, deleted = (sum(map(len, work[name])) for name in ("insert", "delete"))
    expected = inserted - (deleted if phase == "delete" else 0)
    first, *others = ((side.name, side.content()) for side in sides)
    if len(first[1]) != expected:
        raise Differs(f"after {phase}, {first[0]} holds {len(first[1])} rows, not {expected}")
    for name, content in others:
        if content != first[1]:
            odd = [key for key in content.keys() | first[1].keys() if content.get(key) != first[1].get(key)]
            raise Differs(f"after {phase}, {name} and {first[0]} differ in {len(odd)} rows, e.g. {odd[0]}")
