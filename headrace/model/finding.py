"""What a check says before anything is touched: a sentence, a stable code and a hint."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

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
