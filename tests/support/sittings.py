"""A part of the long tests may take several sittings: files that passed at a commit are not run at it again.

`make deep-stores MINUTES=35` begins no further file after so long, and the next `make deep-stores` goes on
with the others, until each has been run; the one after that begins with all. What a part has done stands
below ``docs/evidence/``, one file each, so that another machine can go on at the same commit: in a clone
that has it checked out, with these files of a later one. A commit with changes that are not committed is
begun anew each time.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import pytest

from tests.support.evidence import ROOT, commit

__all__ = ["DIRECTORY", "Sittings"]

DIRECTORY = ROOT / "docs/evidence"


@dataclass
class Sittings:
    """What has been run of a part at one commit.

    Attributes:
        level: The target of the Makefile.
        at: The commit.
        files: Test file, from the root → how many tests of it passed.
        seeds: The seed of each sitting.
        seconds: Of all sittings.
        found: What failed or was repeated in any of them.
    """

    level: str
    at: str
    files: dict[str, int] = field(default_factory=dict)
    seeds: list[str] = field(default_factory=list)
    seconds: float = 0
    found: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, level: str) -> Sittings:
        """Return what was done of a part at the commit that is checked out."""
        at = commit()
        try:
            known = cls(**json.loads((DIRECTORY / f"{level}.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls(level, at)
        return known if known.at == at and not at.endswith("+") else cls(level, at)

    def left(self, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        """Return the tests of files that are not done."""
        return [item for item in items if item.location[0] not in self.files]

    def add(self, items: Sequence[pytest.Item], passed: set[str]) -> None:
        """Take in the tests of a sitting: a file is done when each of its tests has passed."""
        for file, tests in itertools.groupby(items, key=lambda item: item.location[0]):
            names = [item.nodeid for item in tests]
            if passed.issuperset(names):
                self.files[file] = len(names)

    def keep(self, whole: bool) -> None:
        """Write it down for the next sitting; forget it when the part has been run as a whole."""
        file = DIRECTORY / f"{self.level}.json"
        if whole:
            file.unlink(missing_ok=True)
            return
        DIRECTORY.mkdir(exist_ok=True)
        beside = file.with_suffix(".new")  # whoever is killed leaves the file as it was
        beside.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        beside.replace(file)
