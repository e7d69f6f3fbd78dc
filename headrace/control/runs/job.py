"""What working on a run needs, and the wishes of people that it heeds."""

from __future__ import annotations

from dataclasses import dataclass, field

from connectors.row_count import RowCount
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, ResnapshotEntry, SourceEntry, SourceTableEntry
from headrace.control.runs.repository import change, refuse_former, run_of, topics_of

__all__ = ["Aborted", "Counted", "Job", "Paused"]


class Aborted(Exception):
    """Somebody has asked for the end of the run."""


class Paused(Exception):
    """Somebody has asked for the run to rest."""


@dataclass(frozen=True, slots=True)
class Counted:
    """How many rows a table had.

    Args:
        rows: The count.
        before: By partition: where its topic ended before the count.
        ends: By partition: where it ended afterwards; what a sink has to have settled to be compared with it.
    """

    rows: RowCount
    before: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass
class Job:
    """What working on a run needs.

    Args:
        context: The installation.
        name: The run's id.
        registry: The installation's registry.
        kafka: Its Kafka.

    Attributes:
        counts: Pipeline and topic → a count for which its sink is waited; a large table is not counted twice.
    """

    context: Context
    name: str
    registry: Registry
    kafka: Kafka
    told: str | None = field(default=None)
    counts: dict[tuple[str, str], Counted] = field(default_factory=dict)

    @property
    def run(self) -> ResnapshotEntry:
        """Return the run as it stands in the registry now.

        Raises:
            UsageError: When it is gone (``RESNAPSHOT_UNKNOWN``), or of a former life (``RESNAPSHOT_FORMER``).
        """
        return refuse_former(run_of(self.registry, self.name))

    @property
    def source(self) -> SourceEntry:
        """Return the source's entry."""
        return self.registry.source(self.run.source)

    def tables(self, run: ResnapshotEntry) -> list[SourceTableEntry]:
        """Return the run's tables."""
        mine = topics_of(run)
        return [table for table in self.source.tables if table.topic in mine]

    def say(self, reason: str) -> None:
        """Note what the run waits for; nothing when it does not wait."""
        if reason != self.told:
            change(self.registry, self.name, reason=reason)
            self.told = reason

    def heed(self) -> bool:
        """Return whether the run is to rest.

        Raises:
            Aborted: When it is to end.
        """
        wanted = self.run.wanted
        if wanted == "abort":
            raise Aborted
        return wanted == "pause"

    def refuse_rest(self) -> None:
        """Go on only when nobody has asked for anything else.

        Raises:
            Aborted: When the run is to end.
            Paused: When it is to rest.
        """
        if self.heed():
            raise Paused
