"""Runs the property tests with fresh seeds: ``python -m tests.property`` (``make test-deep``).

``HEADRACE_TEST_BUDGET_SECS`` says for how long (600), ``HEADRACE_TEST_SEED`` with which seed to begin (a
random one). In each round every property is tried with one seed, and the simulation with the same seed over
each real store; Elasticsearch and Redis are started once, before the first round, or are those of the home
that ``HEADRACE_TEST_STACK`` names. What fails prints its seed and the program that fails. The run writes its
line into docs/evidence.md.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.support.evidence import Run, note
from tests.support.stack import found_stack, running_stack

_ROOT = Path(__file__).parents[2]
_PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "--no-header",
    "--timeout=0",
    "-x",
    "-m",
    "not deep or fresh",
    "tests/property",
)


def main() -> int:
    """Run until the time is up or something fails; return the exit code."""
    budget = float(os.environ.get("HEADRACE_TEST_BUDGET_SECS", "600"))
    seed = int(os.environ.get("HEADRACE_TEST_SEED", random.randrange(2**31)))
    with found_stack() or running_stack(only={"elasticsearch", "redis"}) as running:
        home = str(running.home.root)
        environment = {
            **os.environ,
            "HEADRACE_TEST_PROFILE": "deep",
            "HEADRACE_TEST_STACK": home,
        }
        began, rounds, failed = time.monotonic(), 0, 0
        while rounds == 0 or time.monotonic() - began < budget:
            _say(f"seed {seed + rounds}, {time.monotonic() - began:.0f} of {budget:.0f} s")
            seeded = [*_PYTEST, f"--hypothesis-seed={seed + rounds}"]
            failed = subprocess.run(seeded, cwd=_ROOT, env=environment, check=False).returncode
            if failed:
                again = f"HEADRACE_TEST_SEED={seed + rounds} HEADRACE_TEST_BUDGET_SECS=1 make test-deep"
                _say(f"failed; again with: {again}")
                break
            rounds += 1
    seeds, found = (
        f"{seed} to {seed + rounds - (not failed)}",
        [f"seed {seed + rounds} fails"] if failed else [],
    )
    note(Run("make test-deep", seeds, time.monotonic() - began, f"{rounds} rounds of every property", found))
    return 1 if failed else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
