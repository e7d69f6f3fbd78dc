"""The error tree: one sentence, one stable code, one hint, one retry class.

    HeadraceError
    ├── UsageError            the caller asked for something that cannot be
    ├── EnvironmentError_     the machine lacks what is needed (disk, port, network, version)
    ├── StackError            a server of the local stack did not start, stop or answer
    ├── SourceError           the database or its connector refuses
    ├── SinkError             the store refuses; record trouble is an Outcome, never this
    │   └── SinkUnavailable   the same, but waiting helps
    └── DecodeError           bytes that are no change (becomes a Poison, never leaves decode)

Retry decisions read ``retry``, never the message.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

__all__ = [
    "DecodeError",
    "EnvironmentError_",
    "HeadraceError",
    "Retry",
    "SinkError",
    "SinkUnavailable",
    "SourceError",
    "StackError",
    "UsageError",
]


class Retry(Enum):
    """What a caller should do about an error."""

    NEVER = "never"
    AFTER_REPAIR = "after_repair"
    LATER = "later"


class HeadraceError(Exception):
    """An error a person can act on.

    Args:
        message: One sentence that says what is wrong, with names, never with secrets or row values.
        code: Stable upper-case identifier, e.g. ``SOURCE_WAL_LEVEL``.
        hint: What to do now, e.g. the SQL to paste. May be empty.
    """

    retry: ClassVar[Retry] = Retry.NEVER
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, code: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint

    def as_dict(self) -> dict[str, str]:
        """Return the error as ``{"code", "message", "hint"}``, the form every edge prints."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class UsageError(HeadraceError):
    """The request itself cannot be carried out; the same request will fail again."""

    exit_code = 2


class EnvironmentError_(HeadraceError):
    """The machine lacks something: disk, port, network, a Python or Java version."""

    retry = Retry.AFTER_REPAIR


class StackError(HeadraceError):
    """A server of the local stack did not start, stop or answer."""

    retry = Retry.AFTER_REPAIR


class SourceError(HeadraceError):
    """The source database or its connector refuses or has lost history."""

    retry = Retry.AFTER_REPAIR


class SinkError(HeadraceError):
    """The store refuses in a way that waiting does not cure."""

    retry = Retry.AFTER_REPAIR


class SinkUnavailable(SinkError):
    """The store does not answer, or asks for patience; the same call may work later."""

    retry = Retry.LATER


class DecodeError(HeadraceError):
    """Bytes that do not decode to a change."""
