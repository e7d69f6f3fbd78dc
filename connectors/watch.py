"""Looking at a database again and again for what it changes without telling it in its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from connectors.base import Hold
from headrace.model.schema import Digits, TableId

__all__ = ["Sight", "Trouble", "Watch"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that keeps what is mirrored of a table from being what the table holds.

    Args:
        table: Which table.
        code: What kind of trouble, for programs.
        lost: Whether rows may differ already; only reading the table anew, later than now, makes sure.
        reason: What was seen, for people.
        statement: What mends the cause, as SQL; empty when it is over, or when SQL does not.
        lasts: Whether it is so still, and will be told at each look until it is mended.
        unless: Nothing is wrong when the log tells that a transaction has emptied the table whose number is
            from the first of these to the last, of 32 bits.
    """

    table: TableId
    code: str
    lost: bool
    reason: str
    statement: str = ""
    lasts: bool = False
    unless: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look saw.

    Args:
        facts: To be handed to the next look, by whomever; JSON.
        troubles: What has changed since the look before, and what is wrong now.
        hold: What the database keeps for the connector.
        columns: Table → the names of the columns that would be captured now.
        digits: Table → its numerics that would be captured now, with their digits.
        others: Tables of the captured schemas that are not captured.
        renamed: Columns that were left out under another name than the one that they have now.
        gave_way: How many sessions of the connector were ended, for they kept others waiting for a lock.
        parted: Tables that are emptied with a word in the log, and their parts without.
        back: Why the database is an earlier state of the one that ``known`` is of; empty when it need not be.
    """

    facts: Mapping[str, Any]
    troubles: tuple[Trouble, ...]
    hold: Hold
    columns: Mapping[TableId, tuple[str, ...]]
    others: tuple[TableId, ...] = ()
    parted: tuple[TableId, ...] = ()
    back: str = ""
    gave_way: int = 0
    renamed: Mapping[TableId, tuple[str, ...]] = field(default_factory=dict)
    digits: Mapping[TableId, Mapping[str, Digits]] = field(default_factory=dict)


class Watch(Protocol):
    """A kept connection to one database. A look may raise; then it is closed and another is opened."""

    def look(self, known: Mapping[str, Any]) -> Sight:
        """Look once; ``known`` are the facts of the look before, empty at the first."""
        ...

    def give_way(self) -> int:
        """End sessions of the connector that keep others waiting for a lock; return how many there were.

        Any thread may call it. It waits for a look at the database, and for nothing before or after that.
        """
        ...

    def close(self) -> None:
        """End the connection; idempotent."""
        ...
