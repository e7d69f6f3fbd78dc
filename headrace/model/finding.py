"""What a check says before anything is touched: a sentence, a stable code and a hint."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace.model.errors import HeadraceError
from headrace.model.schema import TableId

__all__ = ["Finding", "Severity"]


class Severity(str, Enum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check.

    Args:
        severity: An ``ERROR`` forbids going on.
        code: Stable upper-case identifier, e.g. ``SOURCE_WAL_LEVEL``.
        message: One sentence, with names, without secrets and row values.
        hint: What mends it, e.g. SQL to paste. May be empty.
        table: The table it is about; None when it is about the whole.
    """

    severity: Severity
    code: str
    message: str
    hint: str = ""
    table: TableId | None = None

    @classmethod
    def error(cls, code: str, message: str, hint: str = "", table: TableId | None = None) -> Finding:
        """Return what forbids going on."""
        return cls(Severity.ERROR, code, message, hint, table)

    @classmethod
    def warning(cls, code: str, message: str, hint: str = "", table: TableId | None = None) -> Finding:
        """Return what a person should know before going on."""
        return cls(Severity.WARNING, code, message, hint, table)

    @classmethod
    def ok(cls, code: str, message: str) -> Finding:
        """Return what is as it should be."""
        return cls(Severity.OK, code, message)

    @classmethod
    def refused(cls, error: HeadraceError, table: TableId | None = None) -> Finding:
        """Return an error that would be raised later as something that forbids going on now."""
        return cls(Severity.ERROR, error.code, error.message, error.hint, table)
