"""Which errors of a lake are about one of its tables: the others go on."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager

from headrace.model.errors import SinkError
from headrace.model.schema import TableSchema
from sinks.about import about
from sinks.delta.writer import TableWriter

__all__ = ["about_table", "tidied", "was_put_back"]

_log = logging.getLogger("headrace")
_GONE = (
    "DELTA_TABLE_MISSING",
    "DELTA_FILE_UNREADABLE",
    "DELTA_COLUMN_TYPE",
    "DELTA_LOG_UNREADABLE",
    "DELTA_FOREIGN_COMMIT",
)
_OTHERS = (
    "DELTA_PATH_TAKEN",
    "DELTA_CONFLICT",
    "DELTA_TABLE_FEATURE",
    "DELTA_TOMBSTONES_UNREADABLE",
    "DELTA_WENT_BACK",
    "DELTA_PUT_BACK",
    "DELTA_SCAN_OVERTAKEN",
    "DELTA_PERMISSION",
    "DELTA_FILE_SYSTEM",
)


def about_table(schema: TableSchema) -> AbstractContextManager[None]:
    """Name the table in errors that are about it alone."""
    return about(schema.table, _GONE, _OTHERS)


def tidied(writer: TableWriter, until: float) -> bool:
    """Tidy a table a little; return whether to go on with it. One that cannot be is passed over.

    Raises:
        SinkUnavailable: The disk is full: that is everybody's trouble.
    """
    try:
        return writer.tidy(until)
    except SinkError as error:
        if error.code not in (*_GONE, *_OTHERS):
            raise
        if error.code not in ("DELTA_TABLE_MISSING", "DELTA_PUT_BACK"):  # dropped or restored meanwhile
            _log.warning("%s was not tidied: %s", writer.table.name, error.code)
        return False


def was_put_back(writer: TableWriter) -> bool:
    """Return whether a table is not the one that was written to last."""
    try:
        return writer.table.went_back or not writer.table.is_ours
    except OSError:
        return False  # nobody knows; what is settled of it is not taken for true meanwhile
