"""Whether the database went back: restored from a backup, or failed over to a server that lacks the end.

Whatever the connector has delivered was on the database's disk. So a log that ends below what was delivered
or seen is not the log that was followed. On another timeline the log is the same up to the position where it
left the former one: only what was delivered up to there is proven to be part of the database's history.
"""

from __future__ import annotations

from connectors.base import Hold
from headrace.control.registry import Registry, SourceEntry

__all__ = ["moved", "not_proven", "note_position", "went_back"]


def went_back(entry: SourceEntry, hold: Hold, read: int | None, *, at_rest: bool) -> str:
    """Return why a database on the timeline that was followed is an earlier state of it; empty if it is not.

    Args:
        entry: What was seen of it before.
        hold: What it says now.
        read: Up to which position of the log the connector has delivered, asked after ``hold``.
        at_rest: Whether the connector delivers nothing now.
    """
    if hold.flushed is None:
        return ""
    # Asked after the database, a position that still moves may be above; one of an earlier look may not.
    known = [entry.flushed, entry.read, read if at_rest else None]
    highest = max((position for position in known if position is not None), default=0)
    if hold.flushed < highest:
        return (
            f"the database's log ends at {_lsn(hold.flushed)} and was seen at {_lsn(highest)} before:"
            " it was restored to an earlier state"
        )
    return ""


def not_proven(entry: SourceEntry, hold: Hold, read: int | None) -> str:
    """Return why it is not proven that another timeline has all that was delivered; empty when it is.

    Args:
        entry: What was seen before, on the former timeline.
        hold: What the database says now.
        read: Up to which position of the former log the connector has delivered.
    """
    left = (hold.ancestry or {}).get(entry.timeline or 0)
    if left is None:
        return (
            f"the database went from timeline {entry.timeline} to {hold.timeline}, and it does not tell"
            " where: it was restored or failed over"
        )
    if read is None or read > left:
        return (
            f"the database went to timeline {hold.timeline} at {_lsn(left)}, and it is not proven that"
            f" all that was delivered, up to {_lsn(read)}, came before: it was restored or failed over"
        )
    if hold.confirmed is not None and hold.confirmed > read:
        return f"the slot of the new timeline begins {hold.confirmed - read} bytes after what was read"
    return ""


def moved(entry: SourceEntry, hold: Hold) -> bool:
    """Return whether the log is on another timeline than the one that was followed."""
    return None not in (entry.timeline, hold.timeline) and hold.timeline != entry.timeline


def note_position(
    registry: Registry, entry: SourceEntry, hold: Hold, read: int | None, *, asked: bool = True
) -> None:
    """Remember where the log was, for the next look; only after nothing was found to be wrong.

    Args:
        registry: Where to.
        entry: The source, as it was when this look began.
        hold: What the database says.
        read: Up to which position of the log the connector has delivered.
        asked: Whether Connect was asked for that; what was known of it stays otherwise.
    """
    if hold.flushed is None:
        return
    seen = (hold.timeline, hold.flushed, read)
    if seen == (entry.timeline, entry.flushed, entry.read):
        return
    with registry.begin() as session:
        found = session.get(SourceEntry, entry.name)
        # Another life may have begun since the look, or a failover may have been followed: what it saw is
        # of before.
        same = found is not None and found.tables[0].topic_id == entry.tables[0].topic_id
        if found is not None and same and not found.gap and found.timeline == entry.timeline:
            found.timeline, found.flushed = hold.timeline, hold.flushed
            if asked:
                found.read = read


def _lsn(position: int | None) -> str:
    return "an unknown position" if position is None else f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
