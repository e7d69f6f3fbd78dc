"""Trouble of one table at a sink: it waits, told by name, while the sink's other tables go on."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headrace.config.pipeline import PipelineSpec, write_private
from headrace.model.errors import HeadraceError, Retry, named
from headrace.model.position import Position

__all__ = ["Trouble", "Troubles"]

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with one table at the sink.

    Args:
        code, message, hint: As of an error.
        state: The table's word in ``lag``.
        since_ms: Since when, Unix milliseconds.
        epoch: The topic's, at that time; in a later one the trouble is over.
        shut: Whether nothing of the table is applied any more, nor tried again.
        closed: The same, until another target has taken this one's place.
        target: Which of the table's targets was meant; another that has taken its place is not in trouble.
        below: Partition → offset below which Kafka has lost what the target lacks. A run that began there or
            later, and is complete, has made the table right.
    """

    code: str
    message: str
    hint: str
    state: str
    since_ms: int
    epoch: int
    shut: bool = False
    below: Mapping[str, int] | None = None
    target: int = 0
    closed: bool = False


class Troubles:
    """The tables of one sink that are in trouble; a small file beside the checkpoint.

    A table whose target refuses is tried again, ever more rarely; one whose history has a hole goes on, and
    stays told until it was read anew.
    """

    def __init__(self, spec: PipelineSpec) -> None:
        self._spec = spec
        self._file = spec.checkpoint / "troubles.json"
        self._tables = {str(table.schema_.table): table for table in spec.tables}
        self._pauses: dict[str, tuple[float, float]] = {}
        self._found = self._load()

    def _load(self) -> dict[str, Trouble]:
        try:
            stored = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        found = {name: Trouble(**told) for name, told in stored.items() if name in self._tables}
        return {name: one for name, one in found.items() if not self._is_over(name, one)}

    def swept(self, table: str, marks: Sequence[Position]) -> None:
        """Note that a complete run has read the table anew from these positions on."""
        known, began = self._found.get(table), {str(mark.partition): mark.offset for mark in marks}
        below = known.below if known is not None and not known.shut else None
        if below is not None and all(began.get(p, -1) >= offset for p, offset in below.items()):
            del self._found[table]
            self._save()

    def _is_over(self, name: str, trouble: Trouble) -> bool:
        table = self._tables[name]
        if trouble.epoch != table.epoch or (not _lasts(trouble) and trouble.target != table.target):
            return True
        swept = self._spec.swept.get(table.topic)
        return (
            trouble.below is not None
            and swept is not None
            and all(swept.marks[int(partition)] >= below for partition, below in trouble.below.items())
        )

    def refused(self, table: str, error: Mapping[str, Any]) -> None:
        """Note that the table's target took no changes; they wait, and are tried again after a pause."""
        _, pause = self._pauses.get(table, (0.0, _FIRST_PAUSE_S / 2))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
        self._pauses[table] = time.monotonic() + pause, pause
        known = self._found.get(table)
        if known is None or (not _lasts(known) and known.code != error["code"]):
            later = error.get("retry") == Retry.LATER.value
            self._note(table, error, "degraded" if later else "failed")

    def passed(self, table: str) -> None:
        """Note that the table's target takes changes."""
        self._pauses.pop(table, None)
        if table in self._found and not _lasts(self._found[table]):
            del self._found[table]
            self._save()

    def hole(self, table: str, error: HeadraceError, below: Mapping[int, int]) -> None:
        """Note that changes of the table are lost to the target and to Kafka; it goes on after them."""
        known = self._found.get(table)
        if not self.is_shut(table):
            offsets = {**((known.below if known else None) or {}), **{str(p): o for p, o in below.items()}}
            self._note(table, error.as_dict(), "resync_required", below=offsets)

    def shut(self, table: str, error: HeadraceError) -> None:
        """Note that nothing more of the table may be applied."""
        known = self._found.get(table)
        if known is None or not known.shut:
            self._note(table, error.as_dict(), "resync_required", shut=True)

    def close(self, table: str, error: Mapping[str, Any]) -> None:
        """Note that nothing of the table may be applied to the target that it has now."""
        self._note(table, error, "resync_required", closed=True)

    def is_shut(self, table: str) -> bool:
        """Return whether nothing of the table may be applied."""
        known = self._found.get(table)
        return known is not None and (known.shut or known.closed)

    def due(self, table: str) -> bool:
        """Return whether the table's changes may be tried now."""
        return not self.is_shut(table) and time.monotonic() >= self._pauses.get(table, (0.0, 0.0))[0]

    def told(self) -> dict[str, dict[str, Any]]:
        """Return table → what is wrong, ready for the progress file."""
        return {
            table: {
                "code": one.code,
                "state": one.state,
                "message": one.message,
                "hint": one.hint,
                "since_ms": one.since_ms,
                **({} if one.below is None else {"below": one.below}),
            }
            for table, one in self._found.items()
        }

    def _note(
        self,
        table: str,
        error: Mapping[str, Any],
        state: str,
        *,
        shut: bool = False,
        below: Mapping[str, int] | None = None,
        closed: bool = False,
    ) -> None:
        self._found[table] = Trouble(
            error["code"],
            error["message"],
            named(error["hint"], source=self._spec.source, sink=self._spec.sink),
            state,
            int(time.time() * 1000),
            self._tables[table].epoch,
            shut,
            below,
            self._tables[table].target,
            closed,
        )
        self._save()

    def _save(self) -> None:
        write_private(self._file, json.dumps({table: asdict(one) for table, one in self._found.items()}))


def _lasts(trouble: Trouble) -> bool:
    """Return whether the trouble outlives that the target takes changes."""
    return trouble.shut or trouble.below is not None
