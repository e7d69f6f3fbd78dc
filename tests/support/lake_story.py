"""A lake's table that is written as the engine writes it, while others write to it, too."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from headrace.model.change import Change
from headrace.model.outcome import APPLIED
from sinks.contract.story import ORDERS, at, delete, expected, order, state
from sinks.delta import DeltaSink

__all__ = ["TOPIC", "Story", "rebuild", "told"]

TOPIC = "shop.public.orders"


class Story:
    """A table, the changes it was given one offset each, and what the engine does with them."""

    def __init__(self, path: Path, *, vectors: bool = False) -> None:
        self.config = DeltaSink.Config(path=path, deletion_vectors=vectors)
        self.path = str(path / "public" / "orders")
        self.changes: list[Change] = []
        self.sink = DeltaSink("lake", self.config)
        self.sink.prepare(ORDERS)

    def batch(self, *changes: Change) -> None:
        assert self.sink.apply(ORDERS, changes) == [APPLIED] * len(changes)
        self.changes += changes
        self.sink.settle({(TOPIC, 0): len(self.changes) - 1})

    def restart(self) -> None:
        self.sink = DeltaSink("lake", self.config)

    @property
    def stored(self) -> int:
        """Return the offset the store says it has, -1 for none."""
        return self.sink.progress([(TOPIC, 0)]).get((TOPIC, 0), -1)

    def bring_forward(self) -> None:
        self.sink.apply(ORDERS, list({c.key: c for c in self.changes[self.stored + 1 :]}.values()))
        self.sink.settle({(TOPIC, 0): len(self.changes) - 1})

    def is_whole(self) -> None:
        newest = {change.key: change for change in self.changes}.values()
        live = [change for change in newest if change.op.value != "delete"]
        assert state(self.sink, ORDERS) == expected(ORDERS, live)
        assert DeltaTable(self.path).count() == len(live)

    def offset(self) -> int:
        return len(self.changes)


def told(vectors: bool, path: Path) -> Story:
    """Return a table that was given three batches: inserts, an update with a delete, and more of both."""
    story = Story(path, vectors=vectors)
    story.batch(*(order(n, at(n)) for n in range(20)))
    story.batch(order(1, at(20), item="new"), delete(ORDERS, 2, at(21)))
    story.batch(order(30, at(22)), order(3, at(23), item="newer"))
    return story


def rebuild(story: Story) -> None:
    """Do what ``headrace resnapshot SOURCE TABLE`` does with a table that has to be built anew."""
    shadow = DeltaSink("lake", story.config.model_copy(update={"shadow": "r1"}))
    shadow.prepare(ORDERS)
    shadow.apply(ORDERS, list({change.key: change for change in story.changes}.values()))
    shadow.settle({(TOPIC, 0): len(story.changes) - 1})
    shadow.switch(ORDERS)
    story.restart()
