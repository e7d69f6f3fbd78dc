"""A table's shadow in the lake: put in the place of the serving table by one commit, or by one rename."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from headrace.model.errors import SinkError, SinkUnavailable
from headrace.observe.disk import make_folder, sync
from sinks.delta.evolve import rewritten
from sinks.delta.log import by_library
from sinks.delta.table import LakeTable
from sinks.delta.there import refuse_other
from sinks.delta.trouble import READING

__all__ = ["is_of_others", "replace_table"]


def replace_table(shadow: LakeTable, path: Path, lost: Path) -> None:
    """Give the table at ``path`` the columns and rows of another, in one commit.

    Where there is no table that this sink may write to, the other one's directory becomes it; what was there
    is moved into ``lost``, and stays there. Whatever others have done to the table before is undone by this.

    Raises:
        SinkError: ``DELTA_PATH_TAKEN``: there is a table of something else.
    """
    shadow.refresh()
    table = _readable(path)
    if table is not None:
        refuse_other(table, path, shadow.name)
    else:
        _refuse_others(path, shadow.name)
    if table is None:
        make_folder(path.parent)
        if path.exists():
            lost.mkdir(parents=True, exist_ok=True)
            path.rename(lost / uuid.uuid4().hex)
        shadow.path.rename(path)
        sync(path.parent)
        return
    write_deltalake(
        table,
        pa.RecordBatchReader.from_batches(
            shadow.schema, rewritten(shadow.path, shadow.files.values(), shadow.schema)
        ),
        mode="overwrite",
        schema_mode="overwrite",
        commit_properties=by_library(whole=True),
    )


def is_of_others(path: Path, name: str) -> bool:
    """Return whether a directory holds a table of something else, or none; a damaged one is ours."""
    if not (path / "_delta_log").is_dir():
        return any(path.iterdir())
    try:
        _refuse_others(path, name)
    except SinkError as error:
        return error.code == "DELTA_PATH_TAKEN"
    return False


def _refuse_others(path: Path, name: str) -> None:
    """Refuse a table of something else, also one that this sink could not write to."""
    try:
        found = DeltaTable(str(path)) if DeltaTable.is_deltatable(str(path)) else None
    except READING:
        return  # nobody can read it
    if found is not None:
        refuse_other(found, path, name)


def _readable(path: Path) -> DeltaTable | None:
    table = LakeTable(path, path.name)
    try:
        table.refresh()
    except SinkUnavailable:
        raise
    except SinkError:
        return None
    return table.delta
