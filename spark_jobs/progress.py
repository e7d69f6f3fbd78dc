"""What a query tells the outside: one small file per sink, replaced atomically."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.config.pipeline import PipelineSpec, TableSpec
from headrace.model.errors import HeadraceError, named
from spark_jobs.latency import Recent
from spark_jobs.report import Report

__all__ = ["Offsets", "Progress", "now_ms", "replace_json"]


_LATENCIES_S = 300
"""Percentiles tell of the changes of so long."""

Offsets = dict[tuple[str, int], int]
"""(topic, partition) → last settled offset."""


def replace_json(path: Path, value: Any) -> None:
    """Replace ``path`` with ``value`` as JSON, so that a reader sees the old or the new, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


def now_ms() -> int:
    """Return this machine's time, Unix milliseconds."""
    return int(time.time() * 1000)


def _refilled(records: int, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said of a table that the store lacks records of."""
    before = known["trouble"] or {}
    return {
        "code": "STORE_WENT_BACK",
        "state": "catching_up",
        "message": f"the store has lost rows; {records:,} records are applied again",
        "hint": "",
        "since_ms": before["since_ms"] if before.get("code") == "STORE_WENT_BACK" else now_ms(),
    }


def _standing(told: Mapping[str, Any], table: TableSpec) -> dict[str, Any] | None:
    """Return what a record's columns lack of those that are mirrored now, or have beside them.

    No other record may come that says so. A column that was added stays named until one does: the rows of
    before lack its values. A target that was filled beside the one of before has all of them.
    """
    drift = told["drift"]
    if not drift or told.get("target", table.target) != table.target:
        return None
    names = table.schema_.by_name
    now = {**drift, "missing": [name for name in drift.get("missing", ()) if name in names]}
    return now if any(now.values()) else None


class Progress:
    """Counters and state of one sink's query since it was created; thread-safe."""

    def __init__(self, path: Path, spec: PipelineSpec) -> None:
        self._path = path
        self._spec = spec
        self._lock = threading.Lock()
        self._latency = Recent(_LATENCIES_S)
        self._value: dict[str, Any] = {
            "sink": spec.sink,
            "state": "starting",
            "error": None,
            "updated_ms": now_ms(),
            "started_ms": now_ms(),
            "first_row_ms": None,
            "batch_id": None,
            "batch_ms": None,
            "offsets": {},
            "lives": {table.topic: table.life for table in spec.tables},
            "checked_ms": None,
            "applying_since_ms": None,
            "tables": {
                str(table.schema_.table): {
                    "applied": 0,
                    "stale": 0,
                    "rejected": 0,
                    "behind": 0,
                    "drift": None,
                    "last_commit_ms": None,
                    "last_applied_ms": None,
                    "trouble": None,
                }
                for table in spec.tables
            },
            "latency_ms": {"p50": None, "p99": None, "count": 0, "window_seconds": _LATENCIES_S},
        }
        self._resume()

    def _resume(self) -> None:
        """Carry the counters of an earlier process on, so that a restart does not hide history.

        What was counted of a topic that another one of its name has replaced is none of this one's.
        """
        try:
            known = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return
        self._value["first_row_ms"] = known.get("first_row_ms")
        lives = known.get("lives", self._value["lives"])  # a file of an older version does not tell
        offsets, tables = known.get("offsets", {}), known.get("tables", {})
        for spec in self._spec.tables:
            table = str(spec.schema_.table)
            mine = self._value["tables"][table]
            if lives.get(spec.topic) == spec.life:
                self._value["offsets"] |= {spec.topic: offsets[spec.topic]} if spec.topic in offsets else {}
                mine.update(tables.get(table, {}))
            mine["drift"], mine["target"] = _standing(mine, spec), spec.target

    def state(self, state: str, error: dict[str, Any] | HeadraceError | None = None) -> None:
        """Set the query's state and, with it, what is wrong."""
        told = error.as_dict() if isinstance(error, HeadraceError) else error
        if told is not None:
            hint = named(told.get("hint", ""), source=self._spec.source, sink=self._spec.sink)
            told = {**told, "hint": hint}
        with self._lock:
            self._value["state"] = state
            self._value["error"] = told
            if told is not None:
                self._value["applying_since_ms"] = None
        self.write()

    @property
    def current(self) -> str:
        """Return the state last set."""
        return str(self._value["state"])

    @property
    def batch_id(self) -> int | None:
        """Return the number of the batch that was applied last; None before the first."""
        with self._lock:
            number = self._value["batch_id"]
        return None if number is None else int(number)

    @property
    def applied(self) -> int:
        """Return how many changes of all tables were applied."""
        with self._lock:
            return sum(table["applied"] for table in self._value["tables"].values())

    def offsets(self, settled: Offsets) -> None:
        """Note settled offsets (inclusive); the file says the next one to read."""
        with self._lock:
            for (topic, partition), offset in settled.items():
                self._value["offsets"].setdefault(topic, {})[str(partition)] = offset + 1

    def behind(self, counts: Mapping[str, int]) -> None:
        """Note how many rows of each table are behind, as the checkpoint says."""
        with self._lock:
            for table, known in self._value["tables"].items():
                known["behind"] = counts.get(table, 0)

    def stored(self, settled: Offsets, gone: Mapping[tuple[str, int], tuple[int, int]], at_ms: int) -> None:
        """Note what the store itself said at ``at_ms``.

        Args:
            settled: Offsets (inclusive) that were settled.
            gone: Of these, what the store does not have: first offset and the one after the last.
            at_ms: When it was asked.
        """
        self.offsets(settled | {place: begin - 1 for place, (begin, _) in gone.items()})
        with self._lock:
            self._value["checked_ms"] = at_ms
            self._value["applying_since_ms"] = None

    def applying(self) -> None:
        """Note that many records are being applied from now on; the store is asked again after them."""
        with self._lock:
            self._value["applying_since_ms"] = now_ms()

    def troubles(self, told: Mapping[str, Mapping[str, Any]], lacking: Mapping[str, int]) -> None:
        """Say at once which tables are in trouble.

        Args:
            told: Table → what is wrong.
            lacking: Table → how many records the store no longer has, or has not taken.
        """
        changed = False
        with self._lock:
            for table, known in self._value["tables"].items():
                trouble = told.get(table) or (_refilled(lacking[table], known) if table in lacking else None)
                if trouble != known["trouble"]:
                    known["trouble"], changed = trouble, True
        if changed or lacking:
            self.write()

    def batch(self, batch_id: int, seconds: float, report: Report, settled: Offsets) -> None:
        """Add a settled batch."""
        now = now_ms()
        self.behind(report.holds.counts())
        with self._lock:
            value = self._value
            value["batch_id"], value["batch_ms"] = batch_id, round(seconds * 1000)
            self._count(report, now)
            if report.latency.counts:
                self._latency.merge(report.latency.counts)
        self.offsets(settled)

    def request(self, report: Report) -> None:
        """Add what a request has done."""
        self.behind(report.holds.counts())
        with self._lock:
            self._count(report, now_ms())
        self.write()

    def _count(self, report: Report, now: int) -> None:
        value = self._value
        for table, counters in report.tables.items():
            known = value["tables"][table]
            for name in ("applied", "stale", "rejected"):
                known[name] += counters[name]
            known["last_applied_ms"] = now
            known["drift"] = report.drifts.get(table, known["drift"])
            if counters["last_commit_ms"] is not None:
                known["last_commit_ms"] = max(known["last_commit_ms"] or 0, counters["last_commit_ms"])
            if counters["applied"] and value["first_row_ms"] is None:
                value["first_row_ms"] = now

    def write(self) -> None:
        """Write the file; called after each batch and as a sign of life."""
        with self._lock:
            recent = self._latency.histogram()
            told = {"p50": recent.percentile(0.5), "p99": recent.percentile(0.99), "count": recent.total}
            self._value["latency_ms"].update(told)
            self._value["updated_ms"] = now_ms()
            replace_json(self._path, self._value)
