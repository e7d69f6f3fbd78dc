"""What became of a batch's records: counted by the task that applied them, told in a few bytes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from connectors.debezium import Decoder
from headrace.model.change import Change, Poison, Truncate
from headrace.model.errors import Retry
from headrace.model.key import Key
from headrace.model.outcome import Rejected
from headrace.model.schema import TableId
from spark_jobs.carry import topic_of
from spark_jobs.held import Holds, nameless_row
from spark_jobs.latency import Histogram
from spark_jobs.tables import Tables

__all__ = ["REPORT", "Report", "store_may_recover"]

REPORT = "report binary"
"""Schema of what one task returns: one row, a :class:`Report` as JSON."""


@dataclass
class Report:
    """What became of one task's records; JSON-ready through :meth:`dump`.

    ``troubles`` says of tables, with an error each, that not all of their records could be applied: their
    target is in trouble, and the others' are not. ``error`` says the same of the store.
    """

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    latency: Histogram = field(default_factory=Histogram)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    spent: list[str] = field(default_factory=list)
    holds: Holds = field(default_factory=Holds)
    drifts: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    truncates: list[dict[str, Any]] = field(default_factory=list)
    troubles: dict[str, dict[str, Any]] = field(default_factory=dict)
    error: dict[str, Any] | None = None

    def leave_out(self, tables: Mapping[str, str], before: Holds) -> None:
        """Forget what became of some tables' records, all of which are to be applied again.

        Args:
            tables: Table → its topic.
            before: The rows that were behind before these records.
        """
        topics = set(tables.values())
        self.rejects = [reject for reject in self.rejects if reject["topic"] not in topics]
        self.truncates = [truncate for truncate in self.truncates if truncate["topic"] not in topics]
        self.spent = [name for name in self.spent if topic_of(name) not in topics]
        for table in tables:
            self.tables.pop(table, None)
            self.drifts.pop(table, None)
            self.holds.forget(table)
            if table in before.held:
                self.holds.held[table] = before.held[table]

    def drift(self, tables: Tables, by_topic: Mapping[str, Decoder]) -> Report:
        """Note, for the tables that had records, how their columns differ from what is mirrored."""
        for topic, (table, _) in tables.topics.items():
            if str(table) in self.tables:
                found = by_topic[topic].drift
                self.drifts[str(table)] = asdict(found) if found is not None else None
        return self

    def table(self, table: TableId) -> dict[str, Any]:
        """Return the counters of one table."""
        fresh = {"applied": 0, "stale": 0, "rejected": 0, "last_commit_ms": None}
        return self.tables.setdefault(str(table), fresh)

    def reject(self, table: str, record: Change | Poison, version: int, why: Rejected) -> None:
        """Note a record for the dead letter queue, and that its row is behind."""
        o = record.origin
        self.rejects.append(
            {
                "topic": o.topic,
                "partition": o.partition,
                "offset": o.offset,
                "table": table,
                "row": record.key.id if record.key else None,
                "code": why.code,
                "reason": why.reason,
            }
        )
        self.holds.hold(table, record.key.id if record.key else nameless_row(o.partition, o.offset), version)

    def emptied(self, record: Truncate) -> None:
        """Note a truncate, which other partitions of its topic do not tell of."""
        o = record.origin
        self.truncates.append({"topic": o.topic, "partition": o.partition, "offset": o.offset, "lsn": o.lsn})
        self.holds.empty(str(record.table), record.position)
        self.table(record.table)["applied"] += 1

    def took(self, changes: Sequence[Change], bad: Mapping[Key, Rejected], stale: int) -> None:
        """Count changes of one table that were dealt with, those of ``bad`` rows as rejected."""
        table = changes[0].table
        counters, now = self.table(table), time.time() * 1000
        rejected = 0
        committed: Counter[int] = Counter()
        for change in changes:
            origin = change.origin
            if bad and (why := bad.get(change.key)) is not None:
                self.reject(str(table), change, change.position.version, why)
                rejected += 1
            elif origin.committed_ms is not None:
                # A snapshot's rows were committed at a time nobody knows.
                committed[origin.committed_ms] += not origin.snapshot
        for moment, times in committed.items():
            if times:
                self.latency.add(now - moment, times)
        counters["applied"] += len(changes) - rejected - stale
        counters["stale"] += stale
        counters["rejected"] += rejected
        counters["last_commit_ms"] = max(max(committed, default=0), counters["last_commit_ms"] or 0) or None

    def dump(self) -> bytes:
        """Return the report as JSON."""
        return orjson.dumps(
            {
                "tables": self.tables,
                "latency": {str(k): v for k, v in self.latency.counts.items()},
                "rejects": self.rejects,
                "spent": self.spent,
                "holds": self.holds.as_dict(),
                "drifts": self.drifts,
                "truncates": self.truncates,
                "troubles": self.troubles,
                "error": self.error,
            }
        )

    def add(self, other: Report) -> None:
        """Take over what another task, or another part of this one, tells; the first error stays."""
        for name, counters in other.tables.items():
            known = self.tables.setdefault(name, {**counters, "applied": 0, "stale": 0, "rejected": 0})
            for counter in ("applied", "stale", "rejected"):
                known[counter] += counters[counter]
            known["last_commit_ms"] = (
                max(known["last_commit_ms"] or 0, counters["last_commit_ms"] or 0) or None
            )
        self.latency.merge(other.latency.counts)
        self.rejects.extend(other.rejects)
        self.spent.extend(other.spent)
        if other.holds is not self.holds:
            self.holds.add(other.holds)
        self.drifts.update(other.drifts)
        self.truncates.extend(other.truncates)
        self.troubles = {**other.troubles, **self.troubles}
        self.error = self.error or other.error

    @classmethod
    def merged(cls, reports: Iterable[Report]) -> Report:
        """Return the sum of several tasks' reports; the first error wins."""
        total = cls()
        for report in reports:
            total.add(report)
        return total

    @classmethod
    def load(cls, data: bytes) -> Report:
        """Invert :meth:`dump`."""
        raw = orjson.loads(data)
        raw |= {"latency": Histogram({int(k): v for k, v in raw["latency"].items()})}
        return cls(**(raw | {"holds": Holds.from_dict(raw["holds"])}))


def store_may_recover(error: dict[str, Any]) -> bool:
    """Return whether a report's error is worth waiting for."""
    return bool(error["retry"] == Retry.LATER.value)
