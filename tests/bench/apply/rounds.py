"""Rounds: all sides write the same batches in turn, and must leave the same content behind each phase."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import permutations
from typing import Any, Protocol

from tests.bench.apply.cpu import Sampler
from tests.bench.apply.products import PHASES, Batches

__all__ = ["Busy", "Side", "measure"]

_PAUSE_S = 5.0


_Spent = dict[tuple[str, str], list[tuple[float, float]]]
"""Side and phase → wall and processor seconds of each batch."""


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


def measure(sides: Sequence[Side], work: Batches, rounds: int) -> dict[str, Any]:
    """Return ratios and processor time per phase; a first round, which meets cold code, does not count.

    Raises:
        Busy: The store asked for patience in more rounds than were to be measured.
        Differs: After a phase the sides do not hold the same.
    """
    gc.collect()
    gc.freeze()  # the prepared rows are nobody's garbage
    spent: _Spent = {}
    number = lost = 0
    while number <= rounds:
        try:
            found = _round(sides, work, number)
        except Busy:
            lost += 1
            if lost > rounds:
                raise
            time.sleep(_PAUSE_S)
            continue
        for place, used in found.items() if number else ():
            spent.setdefault(place, []).extend(used)
        number += 1
    gc.unfreeze()
    names = [side.name for side in sides]
    phases = {phase: _figures({name: spent[name, phase] for name in names}, work[phase]) for phase in PHASES}
    profiles = {side.name: side.sampler.shares() for side in sides if side.sampler}
    return {"rounds": rounds, "rounds_lost": lost, "phases": phases, "profile": profiles.get("ours", {})}


def _round(sides: Sequence[Side], work: Batches, number: int) -> _Spent:
    spent: _Spent = {}
    orders = list(permutations(sides))
    try:
        for side in sides:
            side.open()
        for phase in PHASES:
            for batch in range(len(work[phase])):
                # Every order in turn: what one side leaves running in the store slows the next.
                for side in orders[(number * len(work[phase]) + batch) % len(orders)]:
                    used = _timed(side, phase, batch, sampled=number > 0)
                    spent.setdefault((side.name, phase), []).append(used)
            _insist_on_equality(sides, phase, work)
    finally:
        for side in sides:
            side.close()
    return spent


def _timed(side: Side, phase: str, batch: int, *, sampled: bool) -> tuple[float, float]:
    with side.sampler if side.sampler and sampled else nullcontext():
        wall, processor = time.perf_counter(), time.process_time()
        side.write(phase, batch)
        return time.perf_counter() - wall, time.process_time() - processor


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


def _figures(
    spent: Mapping[str, list[tuple[float, float]]], batches: Sequence[Sequence[Any]]
) -> dict[str, Any]:
    wall = {name: [seconds for seconds, _ in used] for name, used in spent.items()}
    rows = sum(map(len, batches)) / len(batches)
    return {
        "rows": sum(map(len, batches)),
        **{f"ours_to_{name}": _ratio(times, wall["ours"]) for name, times in wall.items() if name != "ours"},
        "guarded_to_plain": _ratio(wall["plain"], wall["guarded"]),
        "rows_per_second": {name: round(rows / statistics.median(times)) for name, times in wall.items()},
        "processor_s_per_100k": {
            name: round(statistics.median(processor for _, processor in used) / rows * 1e5, 3)
            for name, used in spent.items()
        },
    }


def _ratio(theirs: Sequence[float], own: Sequence[float]) -> dict[str, float]:
    """Return how many of the first's rows a second the second has, batch by batch: median, middle half."""
    ratios = [a / b for a, b in zip(theirs, own, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"median": round(median, 3), "low": round(low, 3), "high": round(high, 3)}
