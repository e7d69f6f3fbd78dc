"""One storm: fill; rage, heal and compare, in turn."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from headrace.demo.workload import Workload
from tests.storm.actions import ACTIONS
from tests.storm.field import Field, open_field
from tests.storm.heal import heal
from tests.storm.plan import Plan, Strike
from tests.support.stack import RunningStack
from tests.support.waiting import settle

__all__ = ["Storm", "broke", "rage"]

_FILL_S = 240.0
_AFTER_S = 5.0
_ROUND = 5
"""After so many faults everybody rests."""


@dataclass(frozen=True, slots=True)
class Storm:
    """What became of a storm.

    Args:
        seed: Its seed.
        planned: How many faults have to strike.
        faults: Action → how often it struck.
        changes: Rows the people and the witness changed.
        looks, greens: Looks at lag; those with a table in sync.
        checked: Sink, and whether all of a table is known → tables in sync that were checked there.
        compared: Sink → how often the table whose columns change was compared there by value.
        blind: Why the looks are not to be relied on; empty when they are.
        false_greens: Looks that said in sync of a table that was not.
        unequal: Tables that differ in the end.
        stuck: Why it did not come to rest; empty when it did.
        remedies: Remedies that status told and that were carried out.
        failed: Those of them that failed; another may have done before what it would do.
        useless: Those of them that failed while every server answered, and that were told there once more.
        refused: Commands that ended otherwise than well, in words; people read them.
        broken: Commands that ended in a traceback, and what broke the storm itself.
        seconds: How long it took.
    """

    seed: int
    planned: int
    faults: dict[str, int]
    changes: int
    looks: int
    greens: int
    checked: dict[str, int]
    compared: dict[str, int]
    blind: str
    false_greens: tuple[dict[str, Any], ...]
    unequal: tuple[dict[str, Any], ...]
    stuck: str
    remedies: tuple[str, ...]
    failed: tuple[str, ...]
    useless: tuple[str, ...]
    refused: tuple[str, ...]
    broken: tuple[str, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Return whether nothing was wrong, and something was done and looked at."""
        wrong = self.false_greens or self.unequal or self.stuck or self.blind or self.broken or self.useless
        struck = sum(self.faults.values()) >= self.planned
        return not wrong and self.changes > 0 and all(self.checked.values()) and struck

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return {**asdict(self), "passed": self.passed}


def rage(running: RunningStack, plan: Plan, folder: Path) -> Storm:
    """Carry a plan out on a stack; what happens is written to ``folder`` as it happens.

    Args:
        running: The stack; other storms may have been on it before.
        plan: What to do.
        folder: For the plan and the log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(plan.as_dict(), indent=1))
    began = time.monotonic()
    remedies: dict[str, list[str]] = {"remedy: ": [], "remedy failed: ": []}

    def log(line: str) -> None:
        for head, told in remedies.items():
            if line.startswith(head):
                told.append(line.removeprefix(head))
        with (folder / "log.txt").open("a") as file:
            file.write(f"{time.monotonic() - began:7.1f} {line}\n")

    with open_field(running, plan.seed, log) as field:
        settle(field.context, _FILL_S)
        field.observer.start()
        faults, changes = Counter[str](), 0
        stuck, unequal = "", list[dict[str, Any]]()
        left = iter((*plan.strikes, *plan.spare))
        for number, most in enumerate(_quiets(len(plan.strikes))):
            changes += _written(field, plan, number, partial(_strike, field, left, faults, most))
            stuck = heal(field)
            unequal = [c.as_dict() for c in field.compare() if not c.equal]
            log(f"quiet: {stuck or 'at rest'}, {len(unequal)} unequal")
            if stuck or unequal:
                break
        field.observer.stop()
    found = field.observer
    for false in found.false:
        log(f"FALSE GREEN {asdict(false)}")
    for one in unequal:
        log(f"UNEQUAL {one}")
    return Storm(
        seed=plan.seed,
        planned=len(plan.strikes),
        faults=dict(faults),
        changes=changes + field.witness.written,
        looks=found.looks,
        greens=found.greens,
        checked={
            place: found.checked[place]
            for sink in field.sinks
            for place in (f"{sink} whole", f"{sink} by samples")
        },
        compared={sink: found.compared[sink] for sink in field.sinks},
        blind=found.blind,
        false_greens=tuple(asdict(false) for false in found.false),
        unequal=tuple(unequal),
        stuck=stuck,
        remedies=tuple(remedies["remedy: "]),
        failed=tuple(remedies["remedy failed: "]),
        useless=tuple(field.useless),
        refused=tuple(field.refused),
        broken=tuple(field.broken),
        seconds=round(time.monotonic() - began, 1),
    )


def _quiets(faults: int) -> list[int]:
    """Return after how many faults in all everybody rests, and every row is compared."""
    return [*range(_ROUND, faults, _ROUND), faults]


def _written(field: Field, plan: Plan, number: int, strike: Callable[[], None]) -> int:
    """Have faults strike while people write; return how many rows these changed."""
    people = Workload(
        field.dsn,
        rate=plan.rate,
        seed=plan.seed + number,
        writers=2,
        sizes=field.sizes,
        bulk_rows=300,
        patience=120.0,
    )
    field.witness.start()
    people.start()
    try:
        strike()
        time.sleep(_AFTER_S)
    finally:
        field.headrace("up")
        changes = people.stop().changes
        field.witness.stop()
    return changes


def broke(plan: Plan, error: BaseException, seconds: float) -> Storm:
    """Return what is said of a storm that an error has ended."""
    return Storm(
        seed=plan.seed,
        planned=len(plan.strikes),
        faults={},
        changes=0,
        looks=0,
        greens=0,
        checked={},
        compared={},
        blind="",
        false_greens=(),
        unequal=(),
        stuck="",
        remedies=(),
        failed=(),
        useless=(),
        refused=(),
        broken=(f"{type(error).__name__}: {error}",),
        seconds=round(seconds, 1),
    )


def _strike(field: Field, left: Iterator[Strike], struck: Counter[str], most: int) -> None:
    """Have faults strike until so many have; those that find nothing to do do not count."""
    while struck.total() < most and (strike := next(left, None)) is not None:
        time.sleep(strike.after_s)
        field.log(f"strike: {strike.action}")
        try:
            ACTIONS[strike.action].run(field, Random(strike.seed))
        except Exception as error:  # noqa: BLE001 - an earlier fault may have taken away what this one needs
            field.log(f"{strike.action} found nothing to do: {type(error).__name__}: {error}")
        else:
            struck[strike.action] += 1
