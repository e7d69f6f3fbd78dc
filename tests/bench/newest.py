"""The newest release of each peer that was known when this was written; the page names what is older."""

from __future__ import annotations

from collections.abc import Mapping

from tests.bench.results import Result

__all__ = ["NEWEST", "stale"]

NEWEST: Mapping[str, str] = {
    "pgsync": "7.3.0",
    "confluent-kafka": "2.16.1",
    "elasticsearch (Python)": "9.5.1",
    "redis (Python)": "8.1.0",
    "deltalake": "1.6.6",
}
"""As :attr:`Result.versions` names them. Look them up again before figures are published."""


def stale(result: Result) -> dict[str, tuple[str, str]]:
    """Return peer → (version measured, newest known) where the two differ."""
    return {
        name: (found, NEWEST[name])
        for name, found in result.versions.items()
        if name in NEWEST and found != NEWEST[name]
    }
