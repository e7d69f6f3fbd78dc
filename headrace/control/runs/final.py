"""Errors that end a run, or its work upon a table, for good."""

from __future__ import annotations

__all__ = ["FINAL"]

FINAL = (
    "ES_MAPPING_CONFLICT",
    "RESNAPSHOT_INCOMPLETE",
    "RESNAPSHOT_PARTITIONS",
    "RESNAPSHOT_ROWS_BUSY",
    "RESNAPSHOT_UNREADABLE",
    "SOURCE_KEY_CHANGED",
    "SOURCE_NO_PRIMARY_KEY",
    "SOURCE_ROW_SECURITY",
    "SOURCE_SELECT_RIGHT",
    "SOURCE_TABLE_MISSING",
    "SOURCE_VALUES",
    "SWEEP_ROWS_BEHIND",
)
"""Codes of errors that trying again does not mend; all others are a server's that may come back."""
