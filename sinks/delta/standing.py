"""Whether tables still hold what was settled of them: looked at before every batch, and when idle."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headrace.model.errors import SinkError, SinkUnavailable
from sinks.delta.log import Offsets, commit_path, mark_of
from sinks.delta.progress import ProgressFile
from sinks.delta.strangers import seen_between
from sinks.delta.table import LakeTable

__all__ = ["Standing"]

_NOTHING: Offsets = {}


@dataclass(frozen=True, slots=True)
class _Looked:
    """A table when it was looked at last.

    Args:
        identity, version: Its id, and its version, when its progress was settled.
        newest: Its newest version.
        mark: Of that version's commit.
    """

    identity: str
    version: int
    newest: int
    mark: tuple[int, int] | None


@dataclass(slots=True)
class Standing:
    """What this process has looked at.

    A look reads the commits since the one that was settled last, never the data, and writes nothing. Where
    nothing was committed since the look before it costs two questions to the file system.
    """

    _looked: dict[Path, _Looked] = field(default_factory=dict)
    _known: dict[Path, int] = field(default_factory=dict)

    def known(self, path: Path, progress: ProgressFile) -> tuple[str, int | None]:
        """Return a table's id, and up to which version every commit is explained; None where nobody knows."""
        identity, version = progress.witness(path) or ("", None)
        return identity, self._known.get(path, version)

    def note(self, path: Path, identity: str, version: int) -> None:
        """Note that everything up to a version is explained: its progress has just been settled."""
        self._looked[path] = _Looked(identity, version, version, mark_of(path, version))

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
        looked = self._looked.get(path)
        if looked is not None and (looked.identity, looked.version) == (identity, version):
            stands = looked.mark is not None and looked.mark == mark_of(path, looked.newest)
            if stands and not commit_path(path, looked.newest + 1).exists():
                return None
        lake = LakeTable(path, path.name)
        try:
            lake.refresh()
        except SinkUnavailable:
            raise
        except SinkError:
            return self._nothing(path)
        if lake.identity != identity or lake.version < version:
            return self._nothing(path)
        found = seen_between(path / "_delta_log", version, lake.version)
        if found.changed or found.unknown:
            return self._nothing(path)
        if found.restored:
            self._known[path] = lake.version
            return found.settled or _NOTHING
        self._looked[path] = _Looked(identity, version, lake.version, mark_of(path, lake.version))
        return None

    def _nothing(self, path: Path) -> Offsets:
        self._looked.pop(path, None)
        self._known.pop(path, None)
        return _NOTHING
