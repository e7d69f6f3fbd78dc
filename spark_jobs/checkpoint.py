"""A query's checkpoint, as a power cut or a hand has left it: what is damaged is not gone by."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from spark_jobs.troubles import Trouble

__all__ = ["mend", "put_aside"]


class _Emptying(BaseModel):
    topic: str
    lsn: int
    at_ms: int
    open: list[int]


class _History(BaseModel):
    epoch: int
    id: str
    last: dict[str, tuple[int, int]]


class _Metadata(BaseModel):
    id: str


class _Requested(BaseModel):
    mark: int
    letters: list[Any]
    swept: list[int]
    swept_mark: int
    due: bool


class _Targets(BaseModel):
    identities: dict[str, str]
    refilled: list[str]


_Whole = TypeAdapter[Any]
_NOTES: dict[str, _Whole] = {
    "emptying.json": TypeAdapter(list[_Emptying]),
    "metadata": TypeAdapter(_Metadata),
    "held.json": TypeAdapter(dict[str, dict[str, list[int]]]),
    "history.json": TypeAdapter(dict[str, _History]),
    "requested.json": TypeAdapter(dict[str, _Requested]),
    "targets.json": TypeAdapter(_Targets),
    "troubles.json": TypeAdapter(dict[str, Trouble]),
}
"""File → what it holds: our own, and the one by which Spark knows the query."""


def put_aside(checkpoint: Path) -> Path | None:
    """Move a checkpoint away of which a note is damaged; return where to, None when all is whole.

    A query without its checkpoint applies again all that Kafka has, and tells of what Kafka lacks. One that
    goes on without a note would forget what was wrong.
    """
    for name, whole in _NOTES.items():
        with suppress(FileNotFoundError, NotADirectoryError):
            try:
                whole.validate_json((checkpoint / name).read_bytes())
            except ValidationError:
                aside = checkpoint.with_name(f".{checkpoint.name}.damaged-{int(time.time() * 1000)}")
                return checkpoint.rename(aside)
    return None


def mend(checkpoint: Path) -> None:
    """Remove the last files of a query's own log that say nothing, as a power cut leaves them.

    What they told is planned, and applied, once more.
    """
    for name in ("offsets", "commits"):
        numbers = sorted(
            (int(p.name) for p in (checkpoint / name).glob("*") if p.name.isdigit()), reverse=True
        )
        for number in numbers:
            path = checkpoint / name / str(number)
            if _says_something(path):
                break
            path.unlink()
            path.with_name(f".{number}.crc").unlink(missing_ok=True)
            for commit in (str(number), f".{number}.crc"):
                (checkpoint / "commits" / commit).unlink(missing_ok=True)


def _says_something(path: Path) -> bool:
    """Return whether a file of the log ends in the object that Spark writes last."""
    try:
        return isinstance(json.loads(path.read_bytes().splitlines()[-1]), dict)
    except (IndexError, ValueError):
        return False
