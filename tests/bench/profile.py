"""``python -m tests.bench.profile SINK``: where each microsecond of a row goes, from Kafka to the store.

    python -m tests.bench.profile redis --runs 5 --rows 50000 --json

Real servers, records of a real connector, and the engine's own functions, one after the other in one process,
so that what runs side by side in the engine can be told apart. Medians of several runs after two warm-ups.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from headrace.cli.context import open_context
from headrace.config.pipeline import PipelineSpec
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry
from headrace.local.endpoints import Endpoints
from headrace.model.change import Change, Record
from headrace.model.outcome import Outcome
from headrace.model.schema import TableSchema
from sinks.base import Sink
from sinks.registry import build
from spark_jobs.apply import apply_records
from spark_jobs.carry import NoCarry
from spark_jobs.collapse import Collapser
from spark_jobs.decode import decoders
from spark_jobs.held import Holds
from spark_jobs.offsets import Ranges
from spark_jobs.reader import Raw, Reader
from spark_jobs.report import Report
from spark_jobs.tables import Tables
from tests.bench.apply import delta, elasticsearch, redis
from tests.bench.apply.cpu import Sampler
from tests.bench.raw.debezium import captured
from tests.bench.raw.driver import apart
from tests.bench.raw.ladder import spec_of
from tests.bench.raw.table import filled
from tests.support.stack import running_stack

_SINKS: Mapping[str, tuple[str, Mapping[tuple[str, str], str]]] = {
    "elasticsearch": ("elasticsearch", elasticsearch.KINDS),
    "redis": ("redis", redis._KINDS),
    "redis-hash": ("redis", redis._KINDS),
    "delta": ("delta", delta._KINDS),
}
"""Name → kind of the sink, and how the functions it spends its time in are told apart."""

_PAYLOAD = "row → payload"
_SEND = "client: requests and answers"
_STAGE_OF = {
    "keys": _PAYLOAD,
    "versions": _PAYLOAD,
    "row to document": _PAYLOAD,
    "document to bytes": _PAYLOAD,
    "rows to Arrow": _PAYLOAD,
    "gathering rows": _PAYLOAD,
    "hand-over": _SEND,
    "commit": _SEND,
    "writing files": _SEND,
    "reading files": _SEND,
}
_REST = "sink: its own decisions"

_WARM_UPS = 2

Stages = dict[str, tuple[float, float]]
"""Stage → seconds by the clock, and of the processor where they are this process' own."""


class _Timed:
    """A sink whose ``apply`` is timed and sampled; all else is the sink's own."""

    def __init__(self, sink: Sink, kinds: Mapping[tuple[str, str], str]) -> None:
        self.sampler = Sampler(kinds)
        self.wall = self.processor = 0.0
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        with self.sampler, _clock() as spent:
            outcomes = self._sink.apply(schema, changes)
        self.wall += spent[0]
        self.processor += spent[1]
        return outcomes


@contextmanager
def _clock() -> Iterator[list[float]]:
    spent = [0.0, 0.0]
    wall, processor = time.perf_counter(), time.process_time()
    yield spent
    spent[0], spent[1] = time.perf_counter() - wall, time.process_time() - processor


def main(arguments: Sequence[str]) -> int:
    """Profile one sink and print where the time went."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profile")
    parser.add_argument("sink", choices=sorted(_SINKS))
    parser.add_argument("--rows", type=int, default=50_000, help="records of the topic (default: 50,000)")
    parser.add_argument("--runs", type=int, default=5, help="how often (default: 5)")
    parser.add_argument("--json", action="store_true", help="print figures for programs")
    asked = parser.parse_args(arguments)
    kind = _SINKS[asked.sink][0]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that servers are stopped then, too
    with running_stack({"postgres", "kafka", "connect", *({kind} - {"delta"})}) as running:
        context = open_context(running.home.root)
        with (
            filled(running.endpoints.postgres_dsn, "raw", asked.rows) as database,
            captured(context, database, "raw"),
        ):
            entry = Registry(context.registry).source("raw")
            spec = spec_of(entry, running.endpoints.kafka_bootstrap, running.home.root)
            runs = apart(
                _profile, asked.sink, spec.model_dump_json(), running.endpoints, asked.rows, asked.runs
            )
    stages = _medians(runs, asked.rows)
    if asked.json:
        print(json.dumps({"sink": asked.sink, "rows": asked.rows, "µs per row": stages}, ensure_ascii=False))
    else:
        Console().print(_table(asked.sink, stages))
    return 0


def _profile(name: str, pipeline: str, at: Endpoints, rows: int, runs: int) -> list[Stages]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        spec = PipelineSpec.model_validate_json(pipeline)
        ends = Kafka(spec.kafka_bootstrap).ends([table.topic for table in spec.tables])
        reader = Reader(spec.kafka_bootstrap, "profile")
        found = []
        for number in range(runs + _WARM_UPS):
            kind, kinds = _SINKS[name]
            sink = build(kind, "bench", _settings(name, number, at, Path(folder)))
            found.append(_once(reader, ends, pipeline, sink, kinds, rows))
            sink.close()
        reader.close()
    return found[_WARM_UPS:]


def _settings(name: str, number: int, at: Endpoints, folder: Path) -> dict[str, Any]:
    """Return settings for a target that nobody has written to."""
    if name == "elasticsearch":
        return {"url": at.elasticsearch_url, "prefix": f"p{number}-"}
    if name == "delta":
        return {"path": folder / f"lake{number}"}
    style = "hash" if name == "redis-hash" else "json"
    return {"url": at.redis_url, "key_prefix": f"p{number}:", "format": style}


def _once(
    reader: Reader,
    ranges: Ranges,
    pipeline: str,
    sink: Sink,
    kinds: Mapping[tuple[str, str], str],
    rows: int,
) -> Stages:
    spec = PipelineSpec.model_validate_json(pipeline)
    tables, by_topic = Tables.of(spec), decoders(pipeline)
    for schema in tables.schemas.values():
        sink.prepare(schema)
    stages: Stages = {}

    def stage(name: str, work: Callable[[], Any]) -> Any:
        with _clock() as spent:
            got = work()
        stages[name] = spent[0], spent[1]
        return got

    def decoding(raws: Sequence[Raw]) -> Iterator[Record]:
        return (by_topic[raw.topic].decode_raw(raw, raw.key, raw.value) for raw in raws)

    read: list[Raw] = stage(_READ, lambda: list(reader.stream(ranges)))
    stage(_DECODE, lambda: deque(decoding(read), maxlen=0))
    # The engine holds a few thousand at a time; so many at once would keep the collector of garbage busy.
    decoded: list[Record] = list(decoding(read))
    gc.collect()
    gc.freeze()
    stage(_COLLAPSE, lambda: _collapse(decoded))
    timed = _Timed(sink, kinds)
    report: Report = stage(_LOOP, lambda: _apply(decoded, timed, tables))
    assert report.error is None, report.error
    applied = sum(counters["applied"] for counters in report.tables.values())
    assert applied == rows, f"{applied} of {rows} rows were applied"
    stage(_SETTLE, lambda: sink.settle({(spec.tables[0].topic, 0): rows}))
    gc.unfreeze()
    return _told_apart(stages, timed)


_READ = "Kafka → Python"
_DECODE = "record → Change"
_COLLAPSE = "collapse to the last change a key"
_LOOP = "engine: outcomes, lag, what is behind"
_WAIT = "waiting for the store"
_SETTLE = "settle"


def _collapse(decoded: Sequence[Record]) -> None:
    collapser = Collapser()
    for record in decoded:
        if isinstance(record, Change):
            collapser.add(record)
            if len(collapser) >= _AT_ONCE:
                collapser.drain()
    collapser.drain()


_AT_ONCE = 5_000


def _apply(decoded: Sequence[Record], timed: _Timed, tables: Tables) -> Report:
    """Apply as much at once as the engine does; in this thread, for no other can be sampled."""
    parts = (decoded[start : start + _AT_ONCE] for start in range(0, len(decoded), _AT_ONCE))
    return Report.merged(
        apply_records(part, timed, tables, NoCarry(), Holds(), rows_at_once=2 * _AT_ONCE) for part in parts
    )


def _told_apart(stages: Stages, timed: _Timed) -> Stages:
    """Return what each stage adds: a later one was measured with the earlier ones inside it."""
    (loop, loop_own), (collapse, collapse_own) = stages[_LOOP], stages[_COLLAPSE]
    told: Stages = {name: stages[name] for name in (_READ, _DECODE, _COLLAPSE)}
    told[_LOOP] = (loop - timed.wall - collapse, loop_own - timed.processor - collapse_own)
    sampled = sum(timed.sampler.seconds.values()) or 1.0
    for name in (_PAYLOAD, _SEND, _REST):
        kinds = {kind: s for kind, s in timed.sampler.seconds.items() if _STAGE_OF.get(kind, _REST) == name}
        # The samples say which share of the processor time is whose.
        seconds = sum(kinds.values()) / sampled * timed.processor
        told[name] = (seconds, seconds)
        for kind, share in sorted(kinds.items(), key=lambda item: -item[1]):
            part = share / sampled * timed.processor
            told[f"{_INSIDE}{kind}"] = (part, part)
    told[_WAIT] = (max(0.0, timed.wall - timed.processor), 0.0)
    told[_SETTLE] = stages[_SETTLE]
    return told


_INSIDE = "  of it "


def _medians(runs: Sequence[Stages], rows: int) -> dict[str, dict[str, float]]:
    names = list(dict.fromkeys(name for run in runs for name in run))
    medians = {}
    for name in names:
        found = [run.get(name, (0.0, 0.0)) for run in runs]
        wall, own = (statistics.median(each[part] for each in found) / rows * 1e6 for part in (0, 1))
        medians[name] = {"wall": round(wall, 2), "python": round(own, 2)}
    return medians


def _table(sink: str, stages: Mapping[str, Mapping[str, float]]) -> Table:
    whole = {name: found for name, found in stages.items() if not name.startswith(_INSIDE)}
    total = sum(found["wall"] for found in whole.values())
    table = Table(f"{sink}: stage", "µs a row", "share", "of it Python's processor", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, found in stages.items():
        share = "" if name.startswith(_INSIDE) else f"{found['wall'] / total:.0%}"
        table.add_row(name, f"{found['wall']:.2f}", share, f"{found['python']:.2f}")
    table.add_row(
        "all, one after the other", f"{total:.2f}", "", f"{sum(f['python'] for f in whole.values()):.2f}"
    )
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
