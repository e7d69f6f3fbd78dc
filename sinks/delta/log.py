"""The table's log: commits, which the library writes at ten times the cost, and deletion vectors in it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from sinks.delta.files import DataFile, sync_all

__all__ = ["Conflict", "append", "commit_path", "vectors_of"]


class Conflict(Exception):
    """Another writer has changed the table meanwhile; what was decided has to be decided again."""


def commit_path(table: Path, version: int) -> Path:
    """Return the file of one commit of the table in the directory ``table``."""
    return table / "_delta_log" / f"{version:020d}.json"


def append(
    log: Path, version: int, removes: Sequence[DataFile], adds: Sequence[DataFile], unforced: Sequence[Path]
) -> None:
    """Write one commit, whole or not at all; its content is on the disk before it has a name.

    Args:
        log: The table's log.
        version: The version to make.
        removes: Files that are no longer part of the table.
        adds: Files that are from now on.
        unforced: Those of them that are to be forced to the disk first.

    Raises:
        Conflict: The version is taken.
        OSError: The disk refuses; nothing was committed.
    """
    now = int(time.time() * 1000)
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": now,
                "operation": "MERGE" if removes else "WRITE",
                "operationParameters": {},
                "engineInfo": "headrace",
            }
        }
    ]
    actions += [
        {
            "remove": _described(file)
            | {"deletionTimestamp": now, "dataChange": True, "extendedFileMetadata": True}
        }
        for file in removes
    ]
    actions += [
        {"add": _described(f) | {"modificationTime": now, "dataChange": True, "stats": f.log_statistics}}
        for f in adds
    ]
    draft = log / f".{uuid.uuid4()}.tmp"
    try:
        draft.write_text("".join(json.dumps(action) + "\n" for action in actions), encoding="utf-8")
        sync_all([*unforced, draft])
        # A link, unlike a rename, refuses a name that is taken.
        commit_path(log.parent, version).hardlink_to(draft)
    except FileExistsError as error:
        raise Conflict(f"version {version} is taken") from error
    finally:
        draft.unlink(missing_ok=True)


def _described(file: DataFile) -> dict[str, Any]:
    described: dict[str, Any] = {"path": file.path, "partitionValues": {}, "size": file.size}
    if file.vector is not None:
        described["deletionVector"] = dict(file.vector)
    return described


def vectors_of(delta: DeltaTable) -> Iterator[tuple[str, np.ndarray, Mapping[str, Any]]]:
    """Yield path, deleted rows and descriptor of each file of a table that has a deletion vector.

    The library gives the rows, but the descriptors only in a checkpoint, so one is made.
    """
    deleted = dict(_deleted_rows(delta))
    if not deleted:
        return
    delta.create_checkpoint()
    log = Path(unquote(urlsplit(delta.table_uri).path)) / "_delta_log"
    checkpoint = log / f"{delta.version():020d}.checkpoint.parquet"
    with pq.ParquetFile(checkpoint) as source:
        adds = source.read(columns=["add.path", "add.deletionVector"])["add"].to_pylist()
    for add in adds:
        vector = add and add.get("deletionVector")
        if add and vector and vector.get("storageType"):
            path = add["path"]
            yield path, deleted[path], {name: value for name, value in vector.items() if value is not None}


def _deleted_rows(delta: DeltaTable) -> Iterator[tuple[str, np.ndarray]]:
    root = urlsplit(delta.table_uri).path.rstrip("/") + "/"
    for batch in pa.table(delta.deletion_vectors()).to_batches():
        paths, masks = batch.column("filepath"), batch.column("selection_vector")
        for number, path in enumerate(paths.to_pylist()):
            keep = masks[number].values.to_numpy(zero_copy_only=False)
            yield unquote(urlsplit(path).path.removeprefix(root)), np.flatnonzero(~keep)
