"""How much is asked of Elasticsearch at a time: answers are bounded in bytes, however large rows are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sinks.elasticsearch.client import Client, Reply

__all__ = ["Paging"]

_STEP = 8


class Paging:
    """Grows or shrinks by what answers have had.

    Args:
        first: How many documents a request asks for at first.
        most: How many at most; as many as at first when None.
        most_bytes: An answer that comes near to so much makes the next page smaller.
    """

    def __init__(self, first: int, most: int | None = None, most_bytes: int = 64 << 20) -> None:
        self._size = first
        self._most = most or first
        self._most_bytes = most_bytes

    @property
    def size(self) -> int:
        """Return how many documents the next request asks for."""
        return self._size

    def ask(self, client: Client, target: str, body: Callable[[int], Mapping[str, Any]]) -> tuple[Reply, int]:
        """Ask for a page, for a smaller one where the cluster cannot hold its answer.

        Args:
            client: Whom.
            target: Path with query.
            body: Of a request for so many documents.

        Returns:
            The answer, and how many documents were asked for.

        Raises:
            SinkError: As from any request; also when not even a single document can be had.
        """
        while True:
            asked = self._size
            reply = client.request("POST", target, body(asked), see=(429,) if asked > 1 else ())
            if reply.status != 429:
                fits = self._most_bytes * asked // max(len(reply.body), 1)
                self._size = max(1, min(self._most, _STEP * asked, fits))
                return reply, asked
            if b"circuit_breaking_exception" not in reply.body:
                raise client.refusal(429, reply.body)
            self._size = max(1, asked // _STEP)
