"""Whether tables still hold what was settled of them: looked at before every batch, and when idle."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.model.errors import SinkError, SinkUnavailable
from sinks.delta.files import Needed, unfit_file
from sinks.delta.hole import missing_commit
from sinks.delta.log import Offsets, commit_path, mark_of
from sinks.delta.progress import ProgressFile, Witness
from sinks.delta.strangers import seen_between
from sinks.delta.table import LakeTable
from sinks.delta.trouble import named

__all__ = ["Standing"]

_NOTHING: Offsets = {}

_EVERY_S = 1.0
_MANY = 10
"""After so many commits of others it is noted up to where was looked: they may remove those before."""
_NOTED_S = 600.0
"""So long after it was noted it is so after one: a log may be kept for an hour only."""
_SHARE = 100
"""To look for the files of all tables may take so small a part of the time."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """A table when it was looked at last.

    Args:
        identity, version: Its id, and its version, when its progress was settled.
        newest: Its newest version.
        mark: Of that version's commit.
        files: Which it needs.
        since: When that version was noted, or this process looked at the table first since.
    """

    identity: str
    version: int
    newest: int
    mark: tuple[int, int] | None
    files: Collection[Needed]
    since: float


@dataclass(slots=True)
class Standing:
    """What this process has looked at.

    A look reads the commits since the one that was settled last, never the data, and writes nothing. Where
    nothing was committed since the look before it costs two questions to the file system, and once a second
    one for each file. What the look before has seen is not read again: others may have removed it since.
    """

    _looked: dict[Path, _Looked] = field(default_factory=dict)
    _known: dict[Path, tuple[str, int]] = field(default_factory=dict)
    _again: dict[Path, float] = field(default_factory=dict)

    def known(self, path: Path, progress: ProgressFile) -> tuple[str, int | None]:
        """Return a table's id, and up to which version every commit is explained; None where nobody knows."""
        identity, version = progress.witness(path) or ("", None)
        seen, newest = self._known.get(path, ("", -1))
        return identity, newest if version is not None and seen == identity else version

    def note(self, path: Path, identity: str, version: int, files: Collection[Needed]) -> None:
        """Note that everything up to a version is explained: its progress has just been settled."""
        self._looked[path] = _Looked(
            identity, version, version, mark_of(path, version), files, time.monotonic()
        )
        self._known[path] = identity, version

    def ahead(self, root: Path, tables: Mapping[str, Mapping[str, object]]) -> list[Witness]:
        """Return what proves the progress of tables that others have committed to often, or long since.

        Args:
            root: The lake's path.
            tables: By topic what proves it until now, as it is stored.
        """
        found, old = [], time.monotonic() - _NOTED_S
        for topic, entry in tables.items():
            path, told = root / str(entry["path"]), (str(entry["id"]), int(str(entry["version"])))
            looked = self._looked.get(path)
            if looked is None or (looked.identity, looked.version) != told:
                continue
            if looked.newest >= looked.version + (1 if looked.since <= old else _MANY):
                found.append(Witness(path, looked.identity, looked.newest, frozenset((topic,))))
        return found

    def still_true(self, path: Path, identity: str, version: int) -> Offsets | None:
        """Return what of a table's progress still holds; None when all of it does.

        Args:
            path: The table's directory.
            identity: Its id when its progress was settled.
            version: Its version then.

        Of a table that is gone, cannot be read, or holds rows that others have changed, nothing does.
        Preparing it, or applying to it, tells why.

        Raises:
            SinkUnavailable: The file system does not say.
        """
        looked, seen, since = self._looked.get(path), version, time.monotonic()
        if looked is not None and (looked.identity, looked.version) == (identity, version):
            stands = looked.mark is not None and looked.mark == mark_of(path, looked.newest)
            if stands and not commit_path(path, looked.newest + 1).exists() and self._is_whole(path, looked):
                return None
            seen, since = looked.newest if stands else version, looked.since
        lake = LakeTable(path, path.name)
        try:
            lake.refresh()
            lake.refuse_unfit_files()
        except SinkUnavailable:
            raise
        except SinkError:
            return self._nothing(path)
        if lake.identity != identity or lake.version < version:
            return self._nothing(path)
        found = seen_between(path / "_delta_log", seen, lake.version)
        if found.changed or found.unknown:
            return self._nothing(path)
        self._known[path] = identity, lake.version
        if found.restored:
            return found.settled or _NOTHING
        mark = mark_of(path, lake.version)
        self._looked[path] = _Looked(identity, version, lake.version, mark, lake.needed_files(), since)
        return None

    def _is_whole(self, path: Path, looked: _Looked) -> bool:
        """Return whether all commits and files of a table are there and whole, or were a moment ago."""
        began = time.monotonic()
        if began < self._again.get(path, began):
            return True
        try:
            unfit = unfit_file(path, looked.files) is not None or missing_commit(path) is not None
        except FileNotFoundError:
            return False  # its folder goes at this moment
        except OSError as error:
            raise named(error, path, path.name) from error
        took, self._again[path] = time.monotonic() - began, began
        # By its own time: one table of very many files delays no look at the others.
        self._again[path] += max(_EVERY_S, _SHARE * len(self._again) * took)
        return not unfit

    def _nothing(self, path: Path) -> Offsets:
        self._looked.pop(path, None)
        self._known.pop(path, None)
        return _NOTHING
