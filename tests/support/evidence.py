"""docs/evidence.md says when the long tests and the storms were last run; the runs themselves write it."""

from __future__ import annotations

import datetime as dt
import itertools
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGE", "ROOT", "Run", "commit", "note"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/evidence.md"
_HEAD = (
    "| run | commit | day | seeds | seconds | what was run | what was found |\n"
    "|---|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of what is run by hand.

    Attributes:
        name: The command.
        seeds: What repeats it.
        seconds: How long it took.
        size: How much was run.
        found: What failed or was repeated, one each.
        kept: Whether runs of other seeds stay on the page: each shows something of its own.
    """

    name: str
    seeds: str
    seconds: float
    size: str
    found: Sequence[str]
    kept: bool = False


def note(run: Run, page: Path = PAGE) -> None:
    """Write a run into the page, in the place of the last of its name; of its seeds, where others stay."""
    row = [run.name, commit(), f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}", run.seeds]
    row += [f"{run.seconds:,.0f}", run.size, "; ".join(run.found) or "nothing"]
    line = "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n"
    text = page.read_text(encoding="utf-8")
    head, found, rest = text.partition(_HEAD)
    assert found, f"{page} has no table of runs"
    lines = rest.splitlines(keepends=True)
    rows = list(itertools.takewhile(lambda each: each.startswith("|"), lines))
    kept = [old for old in rows if not (old.startswith(f"| {run.name} |") and _is_old(old, run))]
    beside = page.with_suffix(".new")  # whoever is killed leaves the page as it was
    beside.write_text("".join([head, _HEAD, *sorted([*kept, line]), *lines[len(rows) :]]), encoding="utf-8")
    beside.replace(page)


def _is_old(row: str, run: Run) -> bool:
    return not run.kept or row.split("|")[4].strip() == run.seeds


def commit() -> str:
    """Return the commit that is checked out, with a plus where files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True, text=True).stdout

    changed = [
        name for name in git("status", "--porcelain").splitlines() if not re.search("evidence|results", name)
    ]
    return git("rev-parse", "--short", "HEAD").strip() + ("+" if changed else "")
