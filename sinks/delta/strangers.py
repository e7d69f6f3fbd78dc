"""What other writers have done to a table since it was known to equal its source.

OPTIMIZE, VACUUM and new properties leave its rows as they are. A RESTORE takes it back to a version whose
progress is known: what came after can be brought forward again. Anything else makes rows that no change of
the source explains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.model.errors import SinkError
from headrace.model.pasted import word
from sinks.delta.log import Commit, Offsets, commit_path, files_of, read_commit
from sinks.delta.trouble import LogGap

__all__ = ["Strangers", "change_before_ours", "foreign", "seen_between", "went_back"]


@dataclass(frozen=True, slots=True)
class Strangers:
    """What happened between two versions.

    Args:
        changed: The first commit that changed rows and is explained by nothing; None when there is none.
        unknown: Whether commits are missing from the log, so that nobody can tell.
        restored: The last RESTORE that took rows of ours back.
        settled: What of the progress is still true after it; None where everything is.
    """

    changed: Commit | None = None
    unknown: bool = False
    restored: Commit | None = None
    settled: Offsets | None = None


def seen_between(log: Path, known: int, now: int) -> Strangers:
    """Return what others did in the versions after ``known``, up to ``now``."""
    found = Strangers()
    for version in range(known + 1, now + 1):
        try:
            commit = read_commit(log, version)
        except LogGap:
            found = Strangers(unknown=True)
            continue
        if commit.ours:
            found = Strangers() if commit.whole else found
        elif commit.changes_data and not found.unknown:
            found = _after(log, found, commit, known)
    return found


def change_before_ours(log: Path, now: int) -> Commit | None:
    """Return the first commit of others that changed rows of a table which we made and have not written to.

    None where there is none, or where the log does not tell any more how the table began.
    """
    found: Commit | None = None
    for version in range(now + 1):
        try:
            commit = read_commit(log, version)
        except LogGap:
            return None
        if commit.ours and (commit.changes_data or commit.whole):
            return None
        if version == 0 and not commit.ours:
            return None
        if commit.changes_data and found is None:
            found = commit
    return found


def _after(log: Path, before: Strangers, commit: Commit, known: int) -> Strangers:
    if commit.restored is None:
        return before if before.changed else Strangers(commit, False, before.restored, before.settled)
    back = _version_of(log, commit)
    target = _oldest_before(log, commit) if back is None else back
    # A RESTORE undoes what a stranger did after the version it goes back to, and brings back what was undone.
    changed = _change_in(log, commit.version - 1 if back is None else back, known)
    try:
        lost = next(
            (
                c
                for n in range(target + 1, commit.version)
                if (c := read_commit(log, n)).ours and c.changes_data
            ),
            None,
        )
    except LogGap:
        return Strangers(unknown=True)
    if lost is None:
        return Strangers(changed, False, before.restored, before.settled)
    settled = lost.settled or {}
    return Strangers(changed, False, commit, _least(before.settled, settled))


def _change_in(log: Path, version: int, known: int) -> Commit | None:
    """Return a change of others in the rows of a version; None when the log tells of none.

    A RESTORE of which the log does not tell where it led counts as one that has undone nothing.
    """
    while version not in (known, -1):
        try:
            commit = read_commit(log, version)
        except LogGap:
            return None
        if commit.ours and (commit.whole or commit.settled):
            return None  # what is settled was explained, or nothing would have been written upon it
        if commit.restored is not None:
            back = _version_of(log, commit)
            version = version - 1 if back is None else back
        elif commit.changes_data and not commit.ours:
            return commit
        else:
            version -= 1
    return None


def _version_of(log: Path, restore: Commit) -> int | None:
    """Return a version whose rows a RESTORE brought back; None when the log does not tell.

    It may name a time instead: Spark without the zone of it. So that is not read, but which version before
    had the files that the table has since.
    """
    named = restore.restored
    if named is not None and 0 <= named < restore.version:
        return named
    more, fewer = frozenset[str](), frozenset[str]()  # since the RESTORE, than in the version looked at
    for version in range(restore.version, 0, -1):
        try:
            added, removed = files_of(log, version)
        except LogGap:
            return None
        more, fewer = (more - removed) | (added - fewer), (fewer - added) | (removed - more)
        if not more and not fewer:
            return version - 1
    return None


def _oldest_before(log: Path, restore: Commit) -> int:
    """Return a version that is not after the one that a RESTORE brought back: the oldest that is known."""
    version = restore.version
    while version > 0 and commit_path(log.parent, version - 1).exists():
        version -= 1
    return version - 1


def _least(one: Offsets | None, other: Offsets) -> Offsets:
    if one is None:
        return other
    return {topic: _least_of(one[topic], other[topic]) for topic in one.keys() & other.keys()}


def _least_of(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    return {partition: min(one[partition], other[partition]) for partition in one.keys() & other.keys()}


def foreign(found: Strangers, name: str) -> SinkError:
    """Return the error of a table whose rows another writer has changed."""
    what = "Commits of other writers, of which the log tells nothing any more, may have"
    if found.changed is not None:
        commit = found.changed
        what = f"Another writer ({commit.engine}) has by {commit.operation} in version {commit.version}"
    return SinkError(
        f"{what} changed rows of {name} in the lake.",
        code="DELTA_FOREIGN_COMMIT",
        hint=f"Build the table anew from the source: headrace resnapshot SOURCE {word(name)}",
    )


def went_back(found: Strangers, name: str) -> SinkError:
    """Return the error of a table that was restored after its progress was looked at."""
    version = found.restored.version if found.restored else -1
    return SinkError(
        f"The lake's table {name} was taken back by RESTORE in version {version}.",
        code="DELTA_WENT_BACK",
        hint="What came after is applied again by itself; wait for the next batch.",
    )
