"""What a worker of Connect has on its plugin path, and what a source needs there."""

from __future__ import annotations

from collections.abc import Collection

from connectors.base import BOUNDED_CONVERTER
from headrace.model.errors import StackError
from headrace.model.finding import Finding

__all__ = ["bounds", "missing", "refuse_without"]


def refuse_without(plugins: Collection[str], needed: str) -> None:
    """Refuse a worker that lacks the connector.

    Args:
        plugins: The classes that the worker has, see :meth:`headrace.control.connect.Connect.plugins`.
        needed: The connector's class.

    Raises:
        StackError: ``CONNECT_LACKS_CONNECTOR``.
    """
    if needed not in plugins:
        raise StackError(
            f"Kafka Connect has no connector {needed}.",
            code="CONNECT_LACKS_CONNECTOR",
            hint="Put Debezium's connector into a folder of the worker's plugin.path and start the worker"
            " again. Then run the same command again.",
        )


def bounds(plugins: Collection[str]) -> bool:
    """Return whether the worker can set records aside that are too large, instead of stopping the source."""
    return BOUNDED_CONVERTER in plugins


def missing(plugins: Collection[str]) -> list[Finding]:
    """Return what the worker should have, and lacks."""
    if bounds(plugins):
        return []
    return [
        Finding.warning(
            "CONNECT_LARGE_RECORDS",
            f"Connect lacks {BOUNDED_CONVERTER}: a record above the limit stops the source.",
            "Put the class on the worker's plugin path and start the worker again.",
        )
    ]
