"""The lake sink: one typed Delta table per source table, fresh and clean for any Delta reader."""

from __future__ import annotations

from sinks.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
