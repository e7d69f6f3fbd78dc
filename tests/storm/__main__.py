"""``python -m tests.storm`` (``make storm``): storms of fresh seeds, one after the other.

What fails is printed with its seed; the same seed with the same number of faults is the same plan again.
The log of each storm is kept in the folder that ``--log`` names.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.storm.actions import ACTIONS
from tests.storm.plan import Plan, draw
from tests.storm.run import Storm, broke, rage
from tests.support.evidence import Run, note
from tests.support.stack import found_stack, running_stack

__all__ = ["main"]


def main() -> int:
    """Let storms rage; return 1 when one of them found something."""
    asked = _arguments()
    first = asked.seed if asked.seed is not None else random.randrange(2**24)
    known = {name: action.weight for name, action in ACTIONS.items()}
    weights = {name: weight for name, weight in known.items() if not asked.only or name in asked.only}
    storms: list[Storm] = []
    began = time.monotonic()
    for seed in range(first, first + asked.seeds):
        _say(f"storm {seed}; again: make storm STORM_ARGS='--seeds 1 --faults {asked.faults} --seed {seed}'")
        storm = _raged(draw(seed, asked.faults, weights), asked.log / str(seed))
        with asked.results.open("a") as file:
            file.write(json.dumps(storm.as_dict()) + "\n")
        storms.append(storm)
        _tell(storm, asked.log / str(seed))
    passed = sum(storm.passed for storm in storms)
    _say(f"{passed} of {len(storms)} storms passed")
    note(
        Run(
            "make storm",
            f"{first} to {first + asked.seeds - 1}" if asked.seeds > 1 else str(first),
            time.monotonic() - began,
            f"{len(storms)} {'storm' if len(storms) == 1 else 'storms'} of {asked.faults} faults:"
            f" {sum(sum(storm.faults.values()) for storm in storms)} struck,"
            f" {sum(storm.changes for storm in storms):,} changes,"
            f" {sum(storm.looks for storm in storms):,} looks,"
            f" {sum(sum(storm.checked.values()) for storm in storms):,} tables checked in green,"
            f" {_commands(storms)}",
            [f"storm {storm.seed} failed" for storm in storms if not storm.passed],
            kept=True,
        )
    )
    return 0 if passed == len(storms) else 1


def _commands(storms: Sequence[Storm]) -> str:
    """Return how many commands ended otherwise than well, for the row of the run."""
    carried_out = sum(len(storm.remedies) for storm in storms)
    failed = sum(len(storm.failed) for storm in storms)
    refused = sum(len(storm.refused) for storm in storms)
    return f"{failed} of {carried_out} remedies failed, {refused} commands refused"


def _raged(plan: Plan, folder: Path) -> Storm:
    """Return what became of a storm; one that breaks does not keep the next ones from raging."""
    began = time.monotonic()
    try:
        # A stack of its own: what one storm leaves behind is not to be another's fault.
        with found_stack() or running_stack() as running:
            return rage(running, plan, folder)
    except Exception as error:  # noqa: BLE001 - it is told, and fails the run
        return broke(plan, error, time.monotonic() - began)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="how many storms")
    parser.add_argument("--faults", type=int, default=10, help="faults of each")
    parser.add_argument("--seed", type=int, help="the first seed; the next ones follow it")
    parser.add_argument("--only", action="append", choices=sorted(ACTIONS), help="draw from these actions")
    kept = Path(tempfile.gettempdir()) / "headrace-storms"
    parser.add_argument("--log", type=Path, default=kept, help="folder for plans and logs")
    parser.add_argument("--results", type=Path, help="gets a line a storm [default: in the log's folder]")
    asked = parser.parse_args()
    asked.log.mkdir(parents=True, exist_ok=True)
    asked.results = asked.results or asked.log / "results.jsonl"
    return asked


def _tell(storm: Storm, folder: Path) -> None:
    word = "passed" if storm.passed else "FAILED"
    _say(
        f"storm {storm.seed} {word} in {storm.seconds:.0f} s: {sum(storm.faults.values())} faults,"
        f" {storm.changes:,} changes, {storm.looks} looks, {sum(storm.checked.values())} checked in green"
        f" ({sum(storm.compared.values())} by every value),"
        f" {len(storm.false_greens)} false, {len(storm.unequal)} unequal, {len(storm.remedies)} remedies"
    )
    if missed := [sink for sink, number in storm.checked.items() if not number]:
        _say(f"  never checked in green: {', '.join(missed)}")
    if storm.blind:
        _say(f"  {storm.blind}")
    for broken in storm.broken:
        _say(f"  broken: {broken}")
    for useless in storm.useless:
        _say(f"  a remedy failed and is told again: {useless}")
    for failed in storm.failed:
        _say(f"  a remedy failed: {failed}")
    for refused in storm.refused:
        _say(f"  refused: {refused}")
    if storm.stuck:
        _say(f"  it did not come to rest: {storm.stuck}")
    for false in storm.false_greens[:5]:
        _say(f"  false green after {false['at_s']} s: {false['sink']} {false['table']}: {false['wrong']}")
    for one in storm.unequal[:5]:
        _say(f"  unequal: {one}")
    if not storm.passed:
        _say(f"  log: {folder / 'log.txt'}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
