"""A commit that a table's log lacks: readers cannot open the table then, or pass it over in silence."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["missing_commit"]

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.")


def missing_commit(table: Path) -> int | None:
    """Return the first version since the newest checkpoint of which the log has no commit, but later ones.

    Raises:
        OSError: The file system does not say.
    """
    names = [path.name for path in (table / "_delta_log").iterdir()]
    commits = {int(found.group(1)) for name in names if (found := _COMMIT.fullmatch(name))}
    checkpoints = [int(found.group(1)) for name in names if (found := _CHECKPOINT.match(name))]
    needed = range(max(checkpoints, default=-1) + 1, max(commits, default=-1))
    return next((version for version in needed if version not in commits), None)
