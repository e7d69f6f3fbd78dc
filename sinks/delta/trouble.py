"""What is wrong with a lake, said as it is: exceptions of libraries and of the system → errors with a remedy.

What a library says is never passed on: it holds paths, and pieces of the log.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from contextlib import suppress
from json import JSONDecodeError
from pathlib import Path

import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from headrace.model.errors import SinkError, SinkUnavailable, SinkWentBack
from headrace.model.pasted import word
from sinks.delta.features import unknown_features
from sinks.delta.hole import missing_commit

__all__ = [
    "LogGap",
    "conflict",
    "file_missing",
    "file_unfit",
    "missing",
    "named",
    "overwritten",
    "put_back",
    "unreadable_log",
    "unwritable",
]

_VECTOR_GONE = re.compile(r"File not found: \S*deletion_vector_")
_VECTOR_BAD = re.compile(r"Deletion Vector error: .*deletion_vector_", re.DOTALL)
_OS_ERROR = re.compile(r"os error (\d+)")
_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_UNSUPPORTED = re.compile(r"Feature '([\w-]+)' is not supported|(Column mapping)|([Cc]atalog-managed)")
_SQLITE_FULL, _SQLITE_REFUSED = ("full",), ("readonly", "unable to open", "permission")


class LogGap(Exception):
    """A commit that the table's log has to have is not there, or makes no sense."""


def named(error: Exception, path: Path, name: str) -> SinkError:
    """Return what an exception means, met while the table ``name`` in the directory ``path`` was in use.

    Only what can get better without anybody's doing in the lake is a :class:`SinkUnavailable`.
    """
    if isinstance(error, SinkError):
        return error
    if isinstance(error, TableNotFoundError):
        return missing(path, name)
    if isinstance(error, CommitFailedError):
        return conflict(name)
    if isinstance(error, FileNotFoundError):
        return file_missing(path, name)
    if isinstance(error, OSError) and error.errno is None:  # a library's word for what it has read
        return file_unfit(name, "cannot be read")
    if isinstance(error, OSError):
        return unwritable(error.errno, path, name, "")
    if isinstance(error, sqlite3.Error):
        return _tombstones(error, path, name)
    if isinstance(error, pa.ArrowException):
        return file_unfit(name, "cannot be read")
    if isinstance(error, DeltaError):
        return _by_library(error, path, name)
    return unreadable_log(path, name)


def _by_library(error: DeltaError, path: Path, name: str) -> SinkError:
    text = str(error)
    if found := _OS_ERROR.search(text):
        number = int(found.group(1))
        if number != errno.ENOENT:
            return unwritable(number, path, name, "")
    if _VECTOR_GONE.search(text):
        return file_missing(path, name)
    if _VECTOR_BAD.search(text):
        return file_unfit(name, "cannot be read")
    if found := _UNSUPPORTED.search(text):
        return unknown_features(name, next(part for part in found.groups() if part))
    return unreadable_log(path, name)


def missing(path: Path, name: str) -> SinkError:
    """Return the error of a table that is gone."""
    return SinkError(
        f"There is no Delta table for {name} at {path}.",
        code="DELTA_TABLE_MISSING",
        hint=f"Put it back, or build it anew: headrace resnapshot SOURCE {word(name)}",
    )


def unreadable_log(path: Path, name: str) -> SinkError:
    """Return the error of a table whose log has a hole, or says what makes no sense."""
    what, again = "a commit is missing or damaged", f"headrace resnapshot SOURCE {word(name)}"
    with suppress(OSError):
        if (gap := missing_commit(path)) is not None:
            what = f"the commit of version {gap} is missing"
    return SinkError(
        f"The log of the lake's table {name} cannot be read: {what}.",
        code="DELTA_LOG_UNREADABLE",
        hint=f"Restore {path} from a backup, or move it away and run: {again}",
    )


def file_missing(path: Path, name: str) -> SinkError:
    """Return the error of a table of which a file is gone."""
    return file_unfit(name, f"is missing in {path}")


def file_unfit(name: str, what: str) -> SinkError:
    """Return the error of a table of which a file is not what was written; ``what`` says of the file why."""
    return SinkError(
        f"A data file of {name} in the lake {what}.",
        code="DELTA_FILE_UNREADABLE",
        hint=f"Restore it from a backup, or build the table anew: headrace resnapshot SOURCE {word(name)}",
    )


def conflict(name: str) -> SinkUnavailable:
    """Return the error of a table that others keep changing."""
    return SinkUnavailable(
        f"Other writers changed {name} in the lake during each attempt to write to it.",
        code="DELTA_CONFLICT",
        hint="Let OPTIMIZE and VACUUM of other tools run less often.",
    )


def overwritten(name: str) -> SinkWentBack:
    """Return the error of a table of whose commits another has replaced one that was ours."""
    told = conflict(name)
    return SinkWentBack(told.message, code=told.code, hint=told.hint)


def put_back(path: Path) -> SinkWentBack:
    """Return the error of a lake, or a table of it, that was restored since its progress was looked at."""
    return SinkWentBack(
        f"What is at {path} was put back to an earlier moment while rows were written.",
        code="DELTA_PUT_BACK",
        hint="Nothing has to be done: what it lacks is applied again.",
    )


def unwritable(number: int | None, path: Path, name: str, what: str) -> SinkUnavailable:
    """Return the error of a directory that the system refuses to write to, by the number of its error."""
    about = what or f"The lake cannot write {name}"
    if number in _FULL:
        return SinkUnavailable(
            f"{about}: the disk is full.",
            code="DELTA_DISK_FULL",
            hint=f"Free some space at {path}; writing goes on by itself.",
        )
    if number in _FORBIDDEN:
        return SinkUnavailable(
            f"{about}: permission is denied.",
            code="DELTA_PERMISSION",
            hint=f"Let the user who runs Headrace write to {path}; writing goes on by itself.",
        )
    reason = os.strerror(number) if number else "the system does not say why"
    return SinkUnavailable(
        f"{about}: {reason}.",
        code="DELTA_FILE_SYSTEM",
        hint=f"Check the disk that {path} is on; writing goes on by itself.",
    )


def _tombstones(error: sqlite3.Error, path: Path, name: str) -> SinkError:
    text = str(error).lower()
    if any(word in text for word in _SQLITE_FULL):
        return unwritable(errno.ENOSPC, path, name, "")
    if any(word in text for word in _SQLITE_REFUSED):
        return unwritable(errno.EACCES, path, name, "")
    if isinstance(error, sqlite3.OperationalError) and "locked" in text:
        return unwritable(errno.EBUSY, path, name, "")
    file = path.parent.parent / "_headrace" / path.parent.name / f"{path.name}.tombstones"
    return SinkError(
        f"What the lake remembers of deleted rows of {name} cannot be read.",
        code="DELTA_TOMBSTONES_UNREADABLE",
        hint=f"Restore {file} from a backup, or build the table anew: "
        f"headrace resnapshot SOURCE {word(name)}",
    )


READING = (DeltaError, JSONDecodeError, LogGap)
"""What reading a table's log may raise."""
