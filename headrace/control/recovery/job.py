"""What working on a recovery needs, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.control.context import Context
from headrace.control.entries import RecoveryEntry
from headrace.control.recovery.left_out import Why
from headrace.control.registry import Registry, SinkEntry, SourceEntry
from headrace.control.remedies import recover
from headrace.model.errors import SinkError

__all__ = ["Job", "Say"]

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Job:
    """One recovery.

    Args:
        context: The installation.
        name: The source.
        registry: The installation's registry.
        say: Told what is done.
        left: Sink → why it could not take the last step; the others have gone on.
    """

    context: Context
    name: str
    registry: Registry
    say: Say
    left: dict[str, SinkError] = field(default_factory=dict)

    @property
    def run(self) -> RecoveryEntry:
        """Return the recovery as it stands in the registry now."""
        with self.registry.reading() as session:
            return session.get_one(RecoveryEntry, self.name)

    @property
    def source(self) -> SourceEntry:
        """Return the source's entry."""
        return self.registry.source(self.name)

    def advance(self, phase: str, **more: Any) -> None:
        """Note that the next step begins, and what it has to know."""
        self._change(phase, more)

    @property
    def has_begun(self) -> bool:
        """Return whether the former life is given up, so that only a new one makes the sinks right."""
        run = self.run
        return run.phase not in ("stopping", "beginning") or run.plan.get("begun", False)

    def begins(self) -> None:
        """Note that the former life is given up."""
        self._change(None, {"begun": True})

    @contextmanager
    def apart(self, sink: str) -> Iterator[None]:
        """Take one step at one sink: what its store refuses ends the step there, and is told at the end."""
        self.left.pop(sink, None)
        try:
            yield
        except SinkError as error:
            self.left[sink] = error
            self.say(f"{sink}: left for now: {error.message}")

    def refuse_left(self) -> None:
        """Tell of the sinks that are left, now that the others are right.

        Raises:
            SinkError: The first one's, with what finishes the recovery.
        """
        left = {sink: error for sink, error in self.left.items() if self.has(sink)}
        if left:
            first = next(iter(left.values()))
            said = "; ".join(f"{sink} is left: {error.message}" for sink, error in left.items())
            again = recover(self.name)
            hint = first.hint if again in first.hint else f"{first.hint} Then: {again}".strip()
            raise type(first)(f"{self.name} is not recovered yet. {said}", code=first.code, hint=hint)

    def leave_out(self, sink: str, tables: Mapping[str, Why]) -> None:
        """Note which tables, by their topics, a sink is not made right of; an interruption forgets none."""
        known = self.run.plan.get("left_out", {})
        self._change(None, {"left_out": {**known, sink: {topic: list(why) for topic, why in tables.items()}}})

    def left_out(self, sink: str) -> dict[str, Why]:
        """Return topic → why, of those tables."""
        known = self.run.plan.get("left_out", {}).get(sink, {})
        return {topic: (code, message) for topic, (code, message) in known.items()}

    def note_whole(self, sink: str, topics: Iterable[str]) -> None:
        """Note that a sink has applied these topics while Kafka had all of them."""
        known = self.run.plan.get("whole", {})
        self._change(None, {"whole": {**known, sink: sorted({*known.get(sink, ()), *topics})}})

    def whole(self, sink: str) -> set[str]:
        """Return those topics; what Kafka drops of them later the sink does not lack."""
        return set(self.run.plan.get("whole", {}).get(sink, ()))

    def _change(self, phase: str | None, more: Mapping[str, Any]) -> None:
        with self.registry.begin() as session:
            run = session.get_one(RecoveryEntry, self.name)
            run.phase, run.plan = phase or run.phase, {**run.plan, **more}

    @property
    def sinks(self) -> list[SinkEntry]:
        """Return the sinks that were there when the recovery began and still are."""
        plan = self.run.plan
        known = plan.get("sinks", plan.get("paused", ()))
        return [sink for sink in self.registry.sinks(self.name) if sink.name in known]

    def has(self, sink: str) -> bool:
        """Return whether a sink is still there: somebody may remove it meanwhile."""
        return any(entry.name == sink for entry in self.sinks)

    def digests(self, sink: str) -> Path:
        """Return the file that tells what a sink held."""
        return self.context.run / f"recover-{self.name}" / f"{sink}.db"
