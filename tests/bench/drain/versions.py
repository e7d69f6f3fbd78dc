"""Versions of what takes part in the whole chain."""

from __future__ import annotations

from importlib.metadata import version

from headrace.local.stack import SERVERS

__all__ = ["package_versions", "stack_versions"]


def package_versions(*names: str) -> dict[str, str]:
    """Return the installed versions of Python packages."""
    return {name: version(name) for name in names}


def stack_versions() -> dict[str, str]:
    """Return the versions of the local stack's servers and of what the engine is made of."""
    servers = {server.name: server.version for server in SERVERS}
    return {**servers, **package_versions("headrace", "pyspark", "deltalake", "redis", "confluent-kafka")}
