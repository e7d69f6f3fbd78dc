"""Runs the property tests with fresh seeds: ``python -m tests.property`` (``make test-deep``).

``HEADRACE_TEST_BUDGET_SECS`` says for how long (600), ``HEADRACE_TEST_SEED`` with which seed to begin (a
random one). What fails prints its seed and the program that fails.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run until the time is up or something fails; return the exit code."""
    budget = float(os.environ.get("HEADRACE_TEST_BUDGET_SECS", "600"))
    seed = int(os.environ.get("HEADRACE_TEST_SEED", random.randrange(2**31)))
    began, rounds = time.monotonic(), 0
    while rounds == 0 or time.monotonic() - began < budget:
        sys.stdout.write(f"seed {seed + rounds}, {time.monotonic() - began:.0f} of {budget:.0f} s\n")
        sys.stdout.flush()
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--timeout=0", "-x", "tests/property"]
        environment = {**os.environ, "HEADRACE_TEST_PROFILE": "deep"}
        seeded = [*command, f"--hypothesis-seed={seed + rounds}"]
        if subprocess.run(seeded, cwd=_ROOT, env=environment, check=False).returncode:
            again = f"HEADRACE_TEST_SEED={seed + rounds} HEADRACE_TEST_BUDGET_SECS=1 make test-deep"
            sys.stdout.write(f"failed; again with: {again}\n")
            return 1
        rounds += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
