"""What working on a recovery needs, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.control.context import Context
from headrace.control.entries import RecoveryEntry
from headrace.control.recovery.left_out import Why
from headrace.control.registry import Registry, SinkEntry, SourceEntry

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
    """

    context: Context
    name: str
    registry: Registry
    say: Say

    @property
    def run(self) -> RecoveryEntry:
        """Return the recovery as it stands in the registry now."""
        with self.registry.begin() as session:
            return session.get_one(RecoveryEntry, self.name)

    @property
    def source(self) -> SourceEntry:
        """Return the source's entry."""
        return self.registry.source(self.name)

    def advance(self, phase: str, **more: Any) -> None:
        """Note that the next step begins, and what it has to know."""
        self._change(phase, more)

    def leave_out(self, sink: str, tables: Mapping[str, Why]) -> None:
        """Note which tables, by their topics, a sink is not made right of; an interruption forgets none."""
        known = self.run.plan.get("left_out", {})
        self._change(None, {"left_out": {**known, sink: {topic: list(why) for topic, why in tables.items()}}})

    def left_out(self, sink: str) -> dict[str, Why]:
        """Return topic → why, of those tables."""
        known = self.run.plan.get("left_out", {}).get(sink, {})
        return {topic: (code, message) for topic, (code, message) in known.items()}

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

    def digests(self, sink: str) -> Path:
        """Return the file that tells what a sink held."""
        return self.context.run / f"recover-{self.name}" / f"{sink}.db"
