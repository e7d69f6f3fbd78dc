"""Peers, each measured beside ours in one sitting."""

from __future__ import annotations

from tests.bench.peers import beside_debezium, beside_pgsync, beside_plain
from tests.bench.suite import Benchmark

__all__ = ["BENCHMARKS"]

BENCHMARKS: tuple[Benchmark, ...] = (
    *beside_plain.BENCHMARKS,
    beside_pgsync.BENCHMARK,
    beside_debezium.BENCHMARK,
)
