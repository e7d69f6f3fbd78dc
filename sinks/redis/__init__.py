"""The Redis sink: one key per row, ordered by versions that a script compares inside Redis."""

from __future__ import annotations

from sinks.redis.sink import RedisSink

__all__ = ["RedisSink"]
