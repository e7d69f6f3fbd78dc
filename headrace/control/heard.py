"""Whether the connector is heard of: by its slot, and by heartbeats, which prove that it delivers."""

from __future__ import annotations

from headrace.control.observation import SourceSeen
from headrace.control.verdicts import State, Verdict

__all__ = ["CLOCK_SLACK_S", "SILENT_AFTER_S", "age_s", "clock_back", "unheard"]

SILENT_AFTER_S = 10.0
BEATS_MISSED = 10
CLOCK_SLACK_S = 1.0


def clock_back(seen: SourceSeen) -> Verdict | None:
    """Return the verdict when the last heartbeat is of a time to come, and so proves nothing."""
    silence = age_s(seen.now_ms, seen.beat_ms)
    if silence is None or silence >= -CLOCK_SLACK_S:
        return None
    said = f"the database's clock was set back: the last heartbeat is of {-silence:.0f} s from now"
    return Verdict(State.DEGRADED, f"{said}, so nothing tells how old it is")


def unheard(seen: SourceSeen) -> Verdict | None:
    """Return the verdict when nothing proves that the connector delivers, though all seems to be well.

    Connect tells of a task that is started again and again only that it runs. Who keeps it from its slot the
    database may tell; else why stands in Connect's log.
    """
    silence = age_s(seen.now_ms, seen.beat_ms)
    allowed = max(SILENT_AFTER_S, BEATS_MISSED * seen.entry.settings["heartbeat_ms"] / 1000)
    late = silence is None or silence > allowed
    beat = "no heartbeat" if silence is None else f"the last heartbeat is {silence:.0f} s old"
    other = seen.hold.barred if seen.hold is not None else None
    if seen.hold is not None and (not seen.hold.active or other is not None):
        said = f"the connector is not connected to its slot, {beat}"
    elif late:
        said = f"{beat}, so what was committed since is not proven to have arrived"
    else:
        return None
    if other is not None:
        return Verdict(State.DEGRADED, f"{said}: {other.who}", other.ends)
    return Verdict(State.DEGRADED, f"{said}; Connect's log says why" if late else said)


def age_s(now_ms: int, then_ms: int | None) -> float | None:
    """Return how many seconds ago something was; None when it is not known.

    It is less than nought when a clock was set back; by how much two clocks may differ, it is nought.
    """
    if then_ms is None:
        return None
    age = (now_ms - then_ms) / 1000
    return 0.0 if -CLOCK_SLACK_S <= age < 0 else age
