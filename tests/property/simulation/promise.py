"""What the topic says a settled row has to be, whatever has happened on the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.model.change import Change, Op, Truncate
from tests.property.simulation.driver import Query

__all__ = ["Promise"]


class Promise:
    """Version of the newest change of each row, as far as the sink was told that it is settled.

    Args:
        query: Whose batches settle.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._upto = 0
        self._newest: dict[str, int] = {}
        self._alive: set[str] = set()
        self._refused: set[str] = set()
        self._forgotten: set[str] = set()

    def check(self, shown: Mapping[str, int], behind: Collection[str]) -> None:
        """Compare with the versions that a reader finds.

        While a batch is under way rows may be newer than what is settled, never older; between batches
        they are exactly that. Rows that are known to be behind are not looked at. While the past is delivered
        once more, a row of which a change was refused before the truncate may show until the truncate comes
        again: no store remembers that it is gone.
        """
        self._follow()
        again = self._query.settled < self._upto
        for key, version in shown.items():
            if key not in behind and not (again and key in self._forgotten):
                assert version >= self._newest.get(key, 0), f"row {key} is older than what is settled"
        if self._query.planned is None and not again:
            expected = {key: self._newest[key] for key in self._alive if key not in behind}
            found = {key: version for key, version in shown.items() if key not in behind}
            assert found == expected, f"settled: {expected}, shown: {found}"

    def _follow(self) -> None:
        for offset in range(self._upto, self._query.promised):
            match self._query.record(offset):
                case Change() as change:
                    self._newest[change.key.id] = change.position.version
                    alive = self._alive.discard if change.op is Op.DELETE else self._alive.add
                    alive(change.key.id)
                    self._forgotten.discard(change.key.id)
                    if offset in self._query.refused:
                        self._refused.add(change.key.id)
                case Truncate() as truncate:
                    self._newest |= dict.fromkeys(self._newest, truncate.position.version)
                    self._alive.clear()
                    self._forgotten |= self._refused
                case other:
                    raise AssertionError(f"the model sent what is no change: {other}")
        self._upto = self._query.promised
