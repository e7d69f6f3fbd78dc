"""What a run of the tests took, and the table that `.ci/run` ends with.

Where ``HEADRACE_TEST_TALLY`` names a file, each run of pytest appends one line of JSON to it, and `.ci/run`
one for each of its phases; ``python -m tests.support.tally FILE`` prints the table, and with ``--few`` fails
when the runs together have repeated too many tests. The long tests (``make deep``) also note their run in
docs/evidence.md, unless ``PYTEST_ARGS`` have chosen some of them.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.evidence import Run, note
from tests.support.repeats import MOST
from tests.support.sittings import Sittings

__all__ = ["Tally", "pytest_configure", "table", "too_many"]

FILE = "HEADRACE_TEST_TALLY"
CHOSEN = "HEADRACE_TEST_CHOSEN"
SLOWEST = 15


class Tally:
    """Seconds, outcomes and repeats of one run of the tests.

    Attributes:
        seconds: Test → seconds with set-up and tear-down, of all its tries.
        outcomes: Outcome → tests.
        repeats: Tests that were run again, a name for each repeat.
        failed: Tests that failed.
    """

    def __init__(self, level: str) -> None:
        self.level = level
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.outcomes: Counter[str] = Counter()
        self.repeats: list[str] = []
        self.failed: list[str] = []
        self._passed: set[str] = set()
        self._began = time.monotonic()
        noted = level.startswith("deep") and not os.environ.get(CHOSEN)
        self._sittings = Sittings.of(level) if noted else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self._sittings and self._sittings.files:
            left = self._sittings.left(items)
            config.hook.pytest_deselected(items=[item for item in items if item not in set(left)])
            items[:] = left

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if str(report.outcome) == "rerun":
            self.repeats.append(report.nodeid)
        elif report.when == "call" or report.outcome != "passed":
            self.outcomes[report.outcome] += 1
            if report.failed:
                self.failed.append(report.nodeid)
        elif report.when == "teardown" and report.nodeid not in self.failed:
            self._passed.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if file := os.environ.get(FILE):
            with Path(file).open("a") as lines:
                lines.write(json.dumps(self.as_dict()) + "\n")
        if self._sittings:
            self._note(self._sittings, session)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Write down what is done with each file: who is killed has run the others before it all the same."""
        done = yield
        if self._sittings and nextitem is not None and nextitem.path != item.path:
            self._note(self._sittings, item.session)
        return done

    def _note(self, sittings: Sittings, session: pytest.Session) -> None:
        """Add this sitting to those before it at the same commit, and write their row."""
        all_ = copy.deepcopy(sittings)
        before = sum(all_.files.values())
        begun, collected = before + self.outcomes.total(), before + session.testscollected
        all_.seconds += time.monotonic() - self._began
        all_.seeds.append(os.environ.get("PYTHONHASHSEED", ""))
        all_.found += [f"failed: `{name}`" for name in self.failed]
        all_.found += [f"repeated: `{name}`" for name in self.repeats]
        all_.add(session.items, self._passed.difference(self.failed))
        all_.keep(whole=sum(all_.files.values()) == collected)
        size = f"{begun} tests" + (f" in {len(all_.seeds)} sittings" if len(all_.seeds) > 1 else "")
        size += f", {collected - begun} not begun" if begun < collected else ""
        seeds = f"PYTHONHASHSEED={', '.join(all_.seeds)}"
        note(Run(f"make {self.level}", seeds, all_.seconds, size, all_.found))

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready; of the seconds of single tests and files only the slowest."""
        slowest = sorted(self.seconds.items(), key=lambda one: -one[1])[:SLOWEST]
        files: Counter[str] = Counter()
        for name, seconds in self.seconds.items():
            files[name.partition("::")[0]] += round(seconds)
        return {
            "level": self.level,
            "seconds": round(time.monotonic() - self._began, 1),
            "tests": self.outcomes.total(),
            "outcomes": dict(self.outcomes),
            "repeats": self.repeats,
            "slowest": [[name, round(seconds, 1)] for name, seconds in slowest],
            "files": files.most_common(SLOWEST),
        }


def pytest_configure(config: pytest.Config) -> None:
    if not config.option.collectonly:
        config.pluginmanager.register(Tally(os.environ.get("HEADRACE_TEST_LEVEL", "tests")), "tally")


def table(lines: list[dict[str, Any]]) -> str:
    """Return the table of a check: phases, the runs of tests within them, repeats, the slowest tests."""
    rows = [f"{'phase':<22}{'seconds':>9}{'tests':>8}{'failed':>8}{'repeats':>9}"]
    total = 0.0
    for line in lines:
        if "phase" in line:
            rows.append(f"{line['phase']:<22}{line['seconds']:>9.0f}")
            total += line["seconds"]
            continue
        failed = line["tests"] - line["outcomes"].get("passed", 0)
        name, repeats = f"  {line['level']}", len(line["repeats"])
        rows.append(f"{name:<22}{line['seconds']:>9.0f}{line['tests']:>8}{failed:>8}{repeats:>9}")
    rows.append(f"{'all':<22}{total:>9.0f}")
    runs = [line for line in lines if "phase" not in line]
    rows += [f"repeated: {name}" for line in runs for name in line["repeats"]]
    slowest = sorted(((s, name) for line in runs for name, s in line["slowest"]), reverse=True)[:SLOWEST]
    rows += ["", f"the {len(slowest)} slowest tests, with set-up and tear-down"] if slowest else []
    rows += [f"{seconds:>8.1f} s  {name}" for seconds, name in slowest]
    files = sorted(((s, name) for line in runs for name, s in line.get("files", ())), reverse=True)[:SLOWEST]
    rows += ["", f"the {len(files)} slowest files"] if files else []
    rows += [f"{seconds:>8} s  {name}" for seconds, name in files]
    return "\n".join(rows)


def too_many(lines: list[dict[str, Any]]) -> str:
    """Return what is wrong when the runs together have repeated more tests than are let pass."""
    names = [name for line in lines for name in line.get("repeats", ())]
    return f"{len(names)} repeats are more than {MOST}: {', '.join(names)}\n" if len(names) > MOST else ""


def _main(*arguments: str) -> int:
    *few, file = arguments
    lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
    sys.stdout.write(too_many(lines) if few else table(lines) + "\n")
    return int(bool(few and too_many(lines)))


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
