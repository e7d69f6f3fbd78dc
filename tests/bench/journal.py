"""Results in a file, a line of JSON each: a run that is cut keeps what it has, and can be shown again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.bench.host import Commit
from tests.bench.results import Result

__all__ = ["Entry", "Run", "append", "newest", "now", "read"]


def now() -> str:
    """Return the time as the journal writes it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Run:
    """One command that measured.

    Args:
        began: When, in UTC.
        commit: Of the code.
        host: What :func:`tests.bench.host.host` says.
        runs: How many samples each side was to have.
        full: Whether larger sizes were taken.
    """

    began: str
    commit: Commit
    host: Mapping[str, Any]
    runs: int
    full: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One result and the circumstances under which it came to be.

    Args:
        run: The command.
        benchmark: Which one yielded it.
        group: Of the benchmark.
        ended: When it was there, in UTC.
        seconds: How long it took, since the benchmark began or had yielded the one before.
        load: Average load before and after.
        result: What was found.
    """

    run: Run
    benchmark: str
    group: str
    ended: str
    seconds: float
    load: tuple[float, float]
    result: Result

    def as_dict(self) -> dict[str, Any]:
        """Return the entry for JSON."""
        head = {name: getattr(self, name) for name in ("benchmark", "group", "ended", "seconds")}
        return {"run": asdict(self.run), **head, "load": list(self.load), "result": self.result.as_dict()}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Entry:
        """Invert :meth:`as_dict`."""
        run = Run(**{**told["run"], "commit": Commit(**told["run"]["commit"])})
        before, after = told["load"]
        result = Result.from_dict(told["result"])
        return cls(**{**told, "run": run, "load": (before, after), "result": result})


def append(path: Path, entry: Entry) -> None:
    """Add an entry; once this returns, it outlives the process and the machine's power."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(entry.as_dict(), ensure_ascii=False) + "\n"
    with path.open("a+b") as file:
        if file.tell() and not _ends_with_a_line(file.fileno(), file.tell()):
            line = "\n" + line  # what was cut stays cut, and takes no whole line with it
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def _ends_with_a_line(descriptor: int, size: int) -> bool:
    return os.pread(descriptor, 1, size - 1) == b"\n"


def read(paths: Iterable[Path]) -> Iterator[Entry]:
    """Yield the entries of several files; a line that was cut while it was written is none.

    Raises:
        ValueError: A whole line is not an entry: the file is something else.
    """
    for path in paths:
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
            if not line:
                continue
            try:
                told = json.loads(line)
            except ValueError:
                continue
            try:
                yield Entry.from_dict(told)
            except (KeyError, TypeError) as error:
                raise ValueError(f"{path.name}, line {number}: this is no result of a benchmark") from error


def newest(entries: Iterable[Entry]) -> Sequence[Entry]:
    """Return the newest entry of each result, a failure no less than a figure."""
    found: dict[str, Entry] = {}
    for entry in entries:
        known = found.get(entry.result.name)
        if known is None or known.ended <= entry.ended:
            found[entry.result.name] = entry
    return list(found.values())
