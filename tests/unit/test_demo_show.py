"""What the demo shows and when it believes that lag is zero, from made-up observations."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headrace.control.lag import LagReport, SinkLag, SourceLag, State, TableLag
from headrace.demo.compare import Comparison
from headrace.demo.ledger import Tally
from headrace.demo.lookout import Look, behind, shows_all_since
from headrace.demo.memory import MemoryWatch
from headrace.demo.probe import Latencies, percentile
from headrace.demo.stock import TABLES
from headrace.demo.verdict import Verdict, print_comparisons
from headrace.demo.watch import Look as Page
from headrace.demo.watch import line, page
from headrace.observe import pidfile

SINKS = ("search", "cache", "lake")


def lag(table: str = "orders", sink: str = "cache", **changed: object) -> TableLag:
    calm = TableLag("shop", f"public.{table}", sink, State.STREAMING, "", "", 0, 1.2, 12_345, 0, 0, 0, 1, 0.4)
    return replace(calm, **changed)  # type: ignore[arg-type]


def report(*tables: TableLag, in_sync: bool = True) -> LagReport:
    sinks = tuple(SinkLag(s, "redis", "shop", State.STREAMING, "", "", {}, None, None) for s in SINKS)
    source = SourceLag("shop", State.STREAMING, "", "", 12 << 20, 0, None, 0.4)
    age = max((table.freshness_seconds or 0.0 for table in tables), default=0.0)
    return LagReport(1, in_sync, (source,), sinks, tables, age if in_sync else None)


def test_only_a_state_of_after_the_moment_proves_anything() -> None:
    since = shows_all_since(100.0)
    assert since(Look(report(lag(freshness_seconds=0.5)), began=101.0))
    assert not since(Look(report(lag(freshness_seconds=1.5)), began=101.0))
    assert not since(Look(report(lag(freshness_seconds=0.5), in_sync=False), began=101.0))


def test_why_lag_is_not_zero_is_said_for_every_sink_that_is_late() -> None:
    late = lag(lag_records=7, state=State.CATCHING_UP)
    broken = lag(sink="lake", state=State.FAILED, reason="the disk is full")
    said = behind(report(lag(sink="search"), late, broken))
    assert said.split("; ") == [
        "cache public.orders is catching_up (7 records to apply)",
        "lake public.orders is failed (the disk is full)",
    ]
    assert behind(None) == "nothing is known of the pipeline"
    assert behind(report(lag())).startswith("no proof")


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, None),
        ([5.0], 0.99, 5.0),
        ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0),
        (list(map(float, range(1, 101))), 0.99, 99.0),
    ],
)
def test_percentiles_are_values_that_were_measured(
    values: list[float], share: float, expected: float | None
) -> None:
    assert percentile(values, share) == expected


def test_a_marker_that_was_never_seen_is_no_fast_one() -> None:
    assert Latencies([100.0] * 98 + [200.0], 1).as_dict() == {
        "p50": 100,
        "p99": 200,
        "max": None,
        "markers": 99,
    }
    assert Latencies([100.0], 9).as_dict()["p50"] is None


@pytest.mark.parametrize("width", [80, 200])
def test_the_page_shows_each_table_and_sink_with_rows_applied_freshness_and_lag(width: int) -> None:
    tables = [lag(t, s, lag_records=n) for t in TABLES for n, s in enumerate(SINKS, 41)]
    look = Page(
        12.3,
        "people are in the shop",
        TABLES,
        SINKS,
        report(*tables),
        original=dict.fromkeys(TABLES, 24000),
        rows={(sink, table): 23_999 for sink in SINKS for table in TABLES},
        tally=Tally(inserts=1, updates=2),
        latency_ms={"search": {"p50": 150, "p99": 312}},
        first_rows={"lake": 33.4},
    )
    console = Console(width=width, record=True, file=Path(os.devnull).open("w"))  # noqa: SIM115
    console.print(page(look, width))
    text = console.export_text()
    for expected in (
        *TABLES,
        *SINKS,
        "24,000",
        "23,999",
        "12,345",
        "1.2s",
        "41",
        "42",
        "43",
        "150 ms",
        "33.4 s",
    ):
        assert expected in text, expected
    assert all(len(shown) <= width for shown in text.splitlines())
    assert "3 changes" in line(look)
    console.file.close()


def test_a_page_before_anything_is_known_is_no_error() -> None:
    console = Console(width=100, record=True, file=Path(os.devnull).open("w"))  # noqa: SIM115
    console.print(page(Page(0.0, "starting", TABLES, SINKS), 100))
    assert "starting" in console.export_text()
    assert "not yet" in line(Page(0.0, "starting", TABLES, SINKS))
    console.file.close()


def test_the_verdict_is_in_sync_only_when_drained_and_equal() -> None:
    equal = Comparison("search", "orders", expected=3, found=3)
    assert Verdict([equal], drained=True).in_sync
    assert not Verdict([equal], drained=False).in_sync
    assert not Verdict([], drained=True).in_sync
    assert not Verdict([equal, Comparison("lake", "orders", missing=["1"])], drained=True).in_sync


def test_differences_are_printed_with_their_first_keys() -> None:
    console = Console(width=100, record=True, file=Path(os.devnull).open("w"))  # noqa: SIM115
    many = [str(n) for n in range(1, 26)]
    print_comparisons(
        console,
        [
            Comparison("search", "orders", expected=30, found=5, missing=many),
            Comparison("cache", "orders", 30, 30, different={"7": ("total", "meta")}),
        ],
    )
    text = console.export_text()
    assert "search orders: missing: 1, 2, 3" in text
    assert "20 and 5 more" in text
    assert "cache orders: different: 7 (total, meta)" in text
    assert "25/0/0" in text
    console.file.close()


def test_memory_counts_this_process_and_those_of_the_stack(tmp_path: Path) -> None:
    pidfile.write(tmp_path / "engine.pid", os.getpid())
    (tmp_path / "gone.pid").write_text('{"pid": 999999, "born": "never"}')
    watch = MemoryWatch(tmp_path)
    peak = watch.stop()
    assert watch.peaks.keys() == {"demo", "engine"}
    assert peak > 10
