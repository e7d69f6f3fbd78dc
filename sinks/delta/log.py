"""The table's log: a commit of ours, whole and on the disk before it has a name, and commits read back.

The library cannot make these commits: it has no word for a deletion vector, and it names a commit before its
content is on the disk, so that a power cut leaves an empty one, which readers pass over in silence (ADR 21).
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import CommitProperties

from sinks.delta.files import DataFile, sync_all
from sinks.delta.trouble import LogGap

__all__ = [
    "Commit",
    "Conflict",
    "Offsets",
    "append",
    "by_library",
    "commit_path",
    "drop_torn",
    "files_of",
    "lines_of",
    "mark_of",
    "read_commit",
    "signed",
]

_ABANDONED_S = 3_600.0
_ENGINE = "headrace"
_PARQUET = b"PAR1"
_SIGN = "headrace"
"""Key of what a commit of this sink says of itself; a commit without it is somebody else's."""

Offsets = Mapping[str, Mapping[str, int]]
"""Topic → partition → the offset up to which everything was settled."""


class Conflict(Exception):
    """Another writer has changed the table meanwhile; what was decided has to be decided again."""


def commit_path(table: Path, version: int) -> Path:
    """Return the file of one commit of the table in the directory ``table``."""
    return table / "_delta_log" / f"{version:020d}.json"


def mark_of(table: Path, version: int) -> tuple[int, int] | None:
    """Return what tells a commit's file from another of its name; None when there is none.

    Raises:
        OSError: The file system does not say.
    """
    try:
        status = commit_path(table, version).stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


@dataclass(frozen=True, slots=True)
class Commit:
    """What a commit did, as far as it matters to who mirrors a table.

    Args:
        version: The version it made.
        operation: Its name, as its writer says.
        engine: Its writer.
        ours: Whether this sink made it.
        changes_data: Whether rows are others after it than before.
        restored: The version a RESTORE went back to; -1 when it names a time instead.
        settled: Of our commits: what was settled before it.
        whole: Of our commits: every row of the table was written anew.
    """

    version: int
    operation: str
    engine: str
    ours: bool
    changes_data: bool
    restored: int | None = None
    settled: Offsets | None = None
    whole: bool = False


def signed(settled: Offsets | None = None, *, whole: bool = False) -> dict[str, Any]:
    """Return what a commit says of itself so that it is known as ours."""
    return {_SIGN: {"settled": settled or {}} | ({"whole": True} if whole else {})}


def by_library(settled: Offsets | None = None, *, whole: bool = False) -> CommitProperties:
    """Return the same for a commit that the library makes; a version that is taken is never insisted on."""
    return CommitProperties(custom_metadata=signed(settled, whole=whole), max_commit_retries=0)


def read_commit(log: Path, version: int) -> Commit:
    """Read one commit.

    Raises:
        LogGap: It is not there, or holds what is no commit.
    """
    actions = _actions(log, version)
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    files = [action.get("add") or action.get("remove") for action in actions]
    operation, sign = str(info.get("operation") or "unknown"), info.get(_SIGN)
    engine = str(info.get("engineInfo") or "unknown")
    return Commit(
        version,
        operation,
        engine,
        ours=sign is not None or engine == _ENGINE,
        changes_data=any(file.get("dataChange", True) for file in files if file),
        restored=_restored(info) if operation == "RESTORE" else None,
        settled=(sign or {}).get("settled"),
        whole=bool((sign or {}).get("whole")),
    )


def files_of(log: Path, version: int) -> tuple[frozenset[str], frozenset[str]]:
    """Return the files that a commit adds and those that it removes, each as it is told from all others.

    Raises:
        LogGap: It is not there, or holds what is no commit.
    """
    actions = _actions(log, version)
    added, removed = (
        frozenset(_told(action[kind]) for action in actions if action.get(kind)) for kind in ("add", "remove")
    )
    return added - removed, removed - added


def _actions(log: Path, version: int) -> list[Any]:
    try:
        actions = [json.loads(line) for line in lines_of(commit_path(log.parent, version))]
    except (FileNotFoundError, ValueError) as error:
        raise LogGap(f"version {version}") from error
    if not actions:
        raise LogGap(f"version {version}")
    return actions


def lines_of(commit: Path) -> list[str]:
    """Return the actions of a commit, a line each: texts in its statistics may hold what else ends a line."""
    return [line for line in commit.read_text(encoding="utf-8").split("\n") if line]


def _told(file: Mapping[str, Any]) -> str:
    vector = file.get("deletionVector") or {}
    return json.dumps([file["path"], *map(vector.get, ("storageType", "pathOrInlineDv", "offset"))])


def _restored(info: Mapping[str, Any]) -> int:
    named = str((info.get("operationParameters") or {}).get("version"))
    return int(named) if named.isdecimal() else -1


def append(
    log: Path,
    version: int,
    removes: Sequence[DataFile],
    adds: Sequence[DataFile],
    unforced: Sequence[Path] = (),
    *,
    settled: Offsets | None = None,
    changes_data: bool = True,
) -> None:
    """Write one commit, whole or not at all; its content is on the disk before it has a name.

    Args:
        log: The table's log.
        version: The version to make.
        removes: Files that are no longer part of the table.
        adds: Files that are from now on.
        unforced: Those of them that are to be forced to the disk first.
        settled: What is settled of the table's topics; it goes back with the table when somebody restores it.
        changes_data: Whether rows are others after it than before, or only in other files.

    Raises:
        Conflict: The version is taken.
        OSError: The disk refuses; nothing was committed.
    """
    now = int(time.time() * 1000)
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": now,
                "operation": ("MERGE" if removes else "WRITE") if changes_data else "OPTIMIZE",
                "operationParameters": {},
                "engineInfo": _ENGINE,
            }
            | signed(settled)
        }
    ]
    actions += [
        {
            "remove": _described(file)
            | {"deletionTimestamp": now, "dataChange": changes_data, "extendedFileMetadata": True}
        }
        for file in removes
    ]
    actions += [
        {
            "add": _described(file)
            | {"modificationTime": now, "dataChange": changes_data, "stats": file.log_statistics}
        }
        for file in adds
    ]
    draft = log / f".{uuid.uuid4()}.tmp"
    try:
        draft.write_text("".join(json.dumps(action) + "\n" for action in actions), encoding="utf-8")
        # The names of the files, too, or the commit could outlive them.
        sync_all([*unforced, draft, log.parent])
        # A link, unlike a rename, refuses a name that is taken.
        commit_path(log.parent, version).hardlink_to(draft)
    except FileExistsError as error:
        raise Conflict(f"version {version} is taken") from error
    finally:
        draft.unlink(missing_ok=True)


def drop_torn(log: Path) -> None:
    """Remove what a power cut has left of files that the library names before their content is on the disk.

    That is a checkpoint without its end, for what it stood for is in the commits, which go only when it is
    whole and on the disk; what names a checkpoint that is not there; and the first commit of a table that was
    about to be made. So are drafts of commits, which a kill leaves.
    """
    for path in log.glob("*.checkpoint*.parquet"):
        if not _is_whole(path):
            path.unlink(missing_ok=True)
    last = log / "_last_checkpoint"
    if last.is_file() and not any(log.glob(f"{_named_by(last):020}.checkpoint*.parquet")):
        last.unlink(missing_ok=True)
    for draft in log.glob(".*.tmp"):
        with suppress(FileNotFoundError):
            if time.time() - draft.stat().st_mtime > _ABANDONED_S:
                draft.unlink()
    first = commit_path(log.parent, 0)
    if [path for path in log.glob("*") if path.suffix in (".json", ".parquet")] == [first]:
        try:
            read_commit(log, 0)
        except LogGap:
            first.unlink(missing_ok=True)


def _named_by(last: Path) -> int:
    try:
        return int(json.loads(last.read_bytes())["version"])
    except (ValueError, KeyError, TypeError):
        return -1


def _is_whole(path: Path) -> bool:
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - len(_PARQUET)))
        return stream.read() == _PARQUET


def _described(file: DataFile) -> dict[str, Any]:
    described: dict[str, Any] = {"path": file.path, "partitionValues": {}, "size": file.size}
    if file.vector is not None:
        described["deletionVector"] = dict(file.vector)
    return described
