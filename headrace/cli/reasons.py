"""Why tables are not well, in lines to be read: each reason once, and below it what mends it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from headrace.control.lag import State

__all__ = ["Trouble", "lines_of"]

_WRONG = (State.DEGRADED, State.FAILED, State.RESYNC_REQUIRED)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is the matter with a table at a sink."""

    table: str
    sink: str
    state: State
    reason: str
    remedy: str


def lines_of(troubles: Iterable[Trouble], known: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield ``reason`` or ``remedy`` and its text: of every remedy, and of what is wrong without one.

    Args:
        troubles: Of tables; one that is well, and has no remedy, is passed over.
        known: Reasons that stand above already.
    """
    alike: dict[tuple[str, str], list[Trouble]] = {}
    for one in troubles:
        if one.remedy or one.state in _WRONG:
            alike.setdefault((one.reason, one.remedy), []).append(one)
    said: set[str] = set()
    for (reason, remedy), (first, *others) in alike.items():
        if reason and reason not in known:
            more = f", and {len(others)} more" if others else ""
            yield "reason", f"{first.table} at {first.sink}{more}: {reason}"
        if remedy and remedy not in said:
            said.add(remedy)
            yield "remedy", remedy
