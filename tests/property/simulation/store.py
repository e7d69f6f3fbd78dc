"""A sink in trouble: around a real one, refusals, deaths and what else may happen in the middle of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from headrace.model.change import Change
from headrace.model.errors import SinkUnavailable
from headrace.model.outcome import Outcome, Rejected
from headrace.model.position import Position
from headrace.model.schema import TableSchema
from sinks.base import Sink

__all__ = ["BAD", "DISLIKED", "Died", "Frail", "Trouble", "be_unavailable", "die"]

BAD = "bad"
"""A value of column ``a`` that the store dislikes."""

DISLIKED = Rejected("STORE_DISLIKES", "no")


class Died(Exception):
    """The driver was killed."""


def die() -> None:
    """Kill the driver."""
    raise Died


def be_unavailable() -> None:
    """Refuse everything for the moment."""
    raise SinkUnavailable("The store is down.", code="STORE_DOWN", hint="Wait.")


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens once.

    Args:
        call: At which writing call, counted from 1.
        moment: ``before`` it, when ``half`` of it is written or ``after`` it.
        strike: What happens.
    """

    call: int
    moment: str
    strike: Callable[[], None]


class Frail:
    """A driver's way to a store.

    Args:
        sink: The sink that is driven.

    Attributes:
        mended: Whether the store takes every value.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._trouble: Trouble | None = None
        self._calls = 0
        self.mended = False

    def expect(self, trouble: Trouble | None) -> Sink:
        """Return the sink as a driver sees it, with ``trouble`` ahead."""
        self._trouble, self._calls = trouble, 0
        return cast("Sink", self)

    def apply(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        self._calls += 1
        self._struck("before")
        middle = len(changes) // 2 if self._due("half") else len(changes)
        outcomes = self._written(schema, changes[:middle])
        self._struck("half")
        outcomes += self._written(schema, changes[middle:])
        self._struck("after")
        return outcomes

    def truncate(self, schema: TableSchema, position: Position) -> int:
        self._calls += 1
        self._struck("before")
        removed = self._sink.truncate(schema, position)
        self._struck("after")
        return removed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def _written(self, schema: TableSchema, changes: Sequence[Change]) -> list[Outcome]:
        liked = [change for change in changes if self.mended or change.row.get("a") != BAD]
        outcomes = self._sink.apply(schema, liked) if liked else []
        known = dict(zip((change.key for change in liked), outcomes, strict=True))
        return [known.get(change.key, DISLIKED) for change in changes]

    def _due(self, moment: str) -> bool:
        return self._trouble is not None and (self._trouble.call, self._trouble.moment) == (
            self._calls,
            moment,
        )

    def _struck(self, moment: str) -> None:
        if self._trouble is not None and self._due(moment):
            trouble, self._trouble = self._trouble, None
            trouble.strike()
