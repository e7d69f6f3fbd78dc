"""Partitions that came, went or were rewritten between two looks; rows come and go with them unseen.

TRUNCATE of a partition is not in the log, DELETE is. Both leave nothing, and VACUUM FULL or CLUSTER after
either leaves the same catalogue. So a partition that was rewritten and holds no row of before has lost none
only where it was seen without rows at the look before, or where the numbers that Postgres keeps of its rows
add up: TRUNCATE sets those of living and of dead rows to zero, and counts no delete.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from connectors.postgres.asking import Asking, Unknown
from connectors.postgres.differences import VERSION
from connectors.watch import Trouble
from headrace.model.schema import TableSchema

__all__ = ["Found", "between", "seen_empty"]

Table = Mapping[str, Any]
_IDS = 1 << 32
"""Numbers of transactions begin anew after so many."""
_TRIES = 5
"""A question is asked at so many looks. Sessions report the numbers of rows within ten seconds."""
_LOOKED_INTO = 100
"""So many partitions are read at one look to see that they are empty."""
_RESTS_S = 300
"""So long one is not read again that took too long, though nothing tells of dead rows."""
# An age beyond two billion transactions is told as one below nought.
_OF_BEFORE = "age(t.xmin) > age(({}::xid8)::xid) OR age(t.xmin) < 0"
_OF_BEFORE_COMING = (
    "age(t.xmin) > age({}::xid) OR age(t.xmin) < 0 OR (t.xmin = {}::xid AND t.cmin::text::bigint < {})"
)
_CAME, _EMPTIED, _UNREAD = "PARTITION_CAME", "PARTITION_EMPTIED", "PARTITION_UNREAD"
_SAID = {_CAME: "had rows when it was attached", _EMPTIED: "was emptied by itself"}
_REWRITTEN = "was rewritten since it was made: rows may have come or gone untold"
_ASKED = {**_SAID, _EMPTIED: "kept its rows when it was rewritten"}
_NOT_YET = "those who wrote to it may not have reported yet how many rows they deleted"


@dataclass(frozen=True, slots=True)
class Found:
    """What two looks tell of a table's partitions.

    Args:
        troubles: What is wrong.
        questions: What is not known yet, JSON: to be kept with the facts of the later look.
    """

    troubles: tuple[Trouble, ...] = ()
    questions: tuple[Table, ...] = ()


def between(schema: TableSchema, before: Table, now: Table, horizon: str, ask: Asking) -> Found:
    """Return what happened to a table's partitions between two looks.

    Args:
        schema: What is captured of the table.
        before: The catalogue's word at the look before, with what was not known then.
        now: The catalogue's word now.
        horizon: Transactions before this one had ended at the look before.
        ask: Asks for rows.
    """
    if now["kind"] != "p" or before["kind"] != "p":
        return Found()
    are = now["units"] or {}
    troubles = list(_of_the_catalogue(schema, before, now))
    open_: list[Table] = []
    unknown: dict[str, Unknown] = {}
    for question in _questions(before, now, horizon):
        unit = are[question["oid"]]
        said = _answer(question, unit, now, ask)
        tries = question["tries"] + (isinstance(said, Unknown) and said.tried)
        if isinstance(said, Unknown) and tries < _TRIES:
            open_.append({**question, "tries": tries})
            unknown.setdefault(f"{unit['name']} {_ASKED[question['code']]}", said)
        elif said is not True:
            code, what = _told(question, unit, now, ask)
            # A TRUNCATE of the whole table excuses no row that is there.
            by = question["unless"] if code == _EMPTIED else None
            unless = None if by is None else (by[0], by[1])
            what = f"its partition {unit['name']} {what}"
            troubles.append(Trouble(schema.table, code, True, what, unless=unless))
    return Found((*troubles, *_unread(schema, unknown)), tuple(open_))


def _told(question: Table, unit: Table, now: Table, ask: Asking) -> tuple[str, str]:
    """Return the code and the words of what is wrong with a partition.

    One that was rewritten since it was made, and is empty, has lost what the log told of it.
    """
    if question["code"] == _CAME and _is_rewritten(unit, now):
        return (_CAME if ask.holds(unit) else _EMPTIED), _REWRITTEN
    return question["code"], _SAID[question["code"]]


def _unread(schema: TableSchema, unknown: Mapping[str, Unknown]) -> Iterator[Trouble]:
    """Yield one trouble for all that is not known of a table: it may have very many partitions."""
    if not unknown:
        return
    what, first = next(iter(unknown.items()))
    others = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    mend = " ".join(dict.fromkeys(one.statement for one in unknown.values() if one.statement))
    said = f"it is not known yet whether its partition {what}{others}: {first.why}"
    yield Trouble(schema.table, _UNREAD, False, said, mend, lasts=True)


def _of_the_catalogue(schema: TableSchema, before: Table, now: Table) -> Iterator[Trouble]:
    """Yield what the catalogue alone tells of partitions."""
    was, are = before["units"] or {}, now["units"] or {}
    for oid in was.keys() - are.keys():
        what = f"its partition {was[oid]['name']} is gone, and its rows with it"
        yield Trouble(schema.table, "PARTITION_GONE", True, what)
    for oid in are.keys() & was.keys():
        # Facts of an older version do not tell the way to the root.
        if was[oid].get("way", are[oid]["way"]) != are[oid]["way"]:
            what = f"its partition {are[oid]['name']} was detached for a while"
            yield Trouble(schema.table, _CAME, True, what)


def _questions(before: Table, now: Table, horizon: str) -> Iterator[Table]:
    """Yield what rows have to tell: what was not known at the look before, and what has happened since."""
    was, are = before["units"] or {}, now["units"] or {}
    asked = {(one["oid"], one["code"]): one for one in before.get("questions", ()) if one["oid"] in are}
    for oid in are.keys() - was.keys():
        values = [are[oid]["came"], are[oid]["came"], are[oid]["step"]]
        unless = _emptied_by(are[oid], horizon, altered=False) if _is_rewritten(are[oid], now) else None
        asked[oid, _CAME] = {"oid": oid, "code": _CAME, "values": values, "unless": unless, "tries": 0}
    for oid, altered in _rewritten(before, now):
        unless, old = _emptied_by(are[oid], horizon, altered=altered), asked.get((oid, _EMPTIED))
        if old is not None:  # rewritten once more: what was there before the first time counts
            asked[oid, _EMPTIED] = {**old, "unless": [old["unless"][0], unless[1]]}
            continue
        mark = (before.get("empty") or {}).get(oid)
        asked[oid, _EMPTIED] = {
            "oid": oid,
            "code": _EMPTIED,
            "values": [horizon],
            "unless": unless,
            "tries": 0,
            "counts": (before.get("counts") or {}).get(oid),
            "upkeep": was[oid].get("upkeep"),
            "empty": mark is not None and bool(mark[-1]),
        }
    yield from asked.values()


def _rewritten(before: Table, now: Table) -> Iterator[tuple[str, bool]]:
    """Yield the partitions that have another file and may have lost rows, and whether ALTER TABLE made it.

    ALTER TABLE of the root leaves one transaction's number upon all of them, and upon a column, and every
    row is a new one then. Only the numbers of rows tell that there was a TRUNCATE before.
    """
    was, are = before["units"] or {}, now["units"] or {}
    both = are.keys() & was.keys()
    moved = [oid for oid in both if are[oid]["file"] != was[oid]["file"]]
    last = {are[oid]["version"] for oid in moved}
    together = len(moved) == len(both) and len(last) == 1
    altered = together and last <= {column[VERSION] for column in (now["columns"] or {}).values()}
    for oid in moved:
        lived, live = (before.get("counts") or {}).get(oid), now["counts"][oid]
        # An estimate of upkeep may be too low.
        counted = was[oid].get("upkeep") == are[oid]["upkeep"] or not live[0]
        if not altered or (lived is not None and counted and _cut(lived, live)):
            yield oid, altered


def _answer(question: Table, unit: Table, now: Table, ask: Asking) -> bool | Unknown:
    """Return whether nothing is wrong with what is asked about a partition."""
    if question["code"] == _CAME:
        if unit["foreign"] or unit["came"] is None:  # a foreign table cannot be asked
            return False
        if unit.get("born"):  # made as a partition: ATTACH would have written its columns anew
            return not _is_rewritten(unit, now)
        held = ask.holds(unit, _OF_BEFORE_COMING, *question["values"])
        return held if isinstance(held, Unknown) else not held
    counts = now["counts"][question["oid"]]
    if _adds_up(question, unit, counts):
        return True
    held = ask.holds(unit, _OF_BEFORE, *question["values"])
    if isinstance(held, Unknown):
        # TRUNCATE leaves no count: whether it was told is known without a right to read.
        return False if held.statement and unit["counted"] < 0 else held
    if held or not _may_add_up(question, unit, counts):
        return held
    return Unknown(_NOT_YET, tried=True)


def _is_rewritten(unit: Table, now: Table) -> bool:
    """Return whether a partition that was made as one has another file than the one it began with.

    It was unlogged before, so that the log tells none of its rows; or it was truncated by itself. VACUUM FULL
    and CLUSTER look the same. ALTER TABLE of the whole table leaves its number upon a column, too.
    """
    if not unit.get("born") or unit["foreign"] or unit["file"] == unit["number"]:
        return False
    return unit["version"] not in {column[VERSION] for column in (now["columns"] or {}).values()}


def _adds_up(question: Table, unit: Table, now: list[int]) -> bool:
    """Return whether a partition without rows has lost those of before by deletes, or there were none.

    VACUUM FULL and CLUSTER count the rows that they write. What sessions report is not always all: a
    TRUNCATE that a later statement of the same session follows within a second may be forgotten.
    """
    if question.get("counts") is None or unit["counted"]:  # facts of an older version; or rows are there
        return False
    (lived, had_inserted, had_deleted, _), (live, inserted, deleted, dead) = question["counts"], now
    came, went = inserted - had_inserted, deleted - had_deleted
    agree = min(came, went) >= 0 and live == lived + came - went == 0
    return agree and (bool(question["empty"]) or (went > 0 and dead > 0 and _same_upkeep(question, unit)))


def _may_add_up(question: Table, unit: Table, now: list[int]) -> bool:
    """Return whether the numbers of rows may still come to agree: sessions report late."""
    was = question.get("counts")
    if was is None or unit["counted"]:
        return False
    return _same_upkeep(question, unit) and not _cut(was, now)


def _same_upkeep(question: Table, unit: Table) -> bool:
    """Return whether the numbers of rows are those of sessions still; upkeep of a table makes them anew.

    Before version 15 some may be lost on their way.
    """
    return unit["upkeep"] is not None and bool(question["upkeep"] == unit["upkeep"])


def _cut(was: list[int], now: list[int]) -> bool:
    """Return whether fewer rows live than deletes have left."""
    return now[0] < was[0] - (now[2] - was[2])


def _emptied_by(unit: Table, horizon: str, *, altered: bool) -> list[int]:
    """Return the first and the last transaction that may have emptied a partition.

    Its row in the catalogue has the number of whoever wrote it last. The file that TRUNCATE makes is frozen
    up to a transaction that was under way then, and has no count. One that was made later tells nothing.
    """
    last, frozen = int(unit["version"]), int(unit["frozen"])
    if altered or unit["counted"] >= 0:
        frozen = int(horizon) % _IDS
    return [frozen if (last - frozen) % _IDS < _IDS // 2 else last, last]


def seen_empty(before: Table | None, now: Table, ask: Asking) -> dict[str, list[Any]]:
    """Return partition → its file, the numbers of its rows, and whether it was seen to hold none.

    The numbers alone do not prove it: after a crash they are zero for each. They tell when a partition that
    was read has to be read again. One that takes too long, for its many dead rows, was not seen to hold none
    (None); it is read again when upkeep, or their number, tells that some are gone. Where no number tells of
    dead rows it is read again after some minutes.
    """
    units, known = now["units"] or {}, (before or {}).get("empty") or {}
    seen: dict[str, list[Any]] = {}
    left = _LOOKED_INTO
    for oid, (live, inserted, deleted, dead) in now["counts"].items():
        mark, slow = [units[oid]["file"], inserted, deleted], [units[oid]["file"], units[oid]["upkeep"]]
        if live or units[oid]["foreign"]:
            continue
        old = known.get(oid, (None,))
        rests = old[-1] is None and old[:2] == slow and old[2] <= dead
        if rests and not old[2]:
            rests = 0 < old[3] - time.time() <= _RESTS_S  # clocks are set back
        if old[:-1] == mark or rests:
            seen[oid] = old
        elif left:
            left -= 1
            held = ask.holds(units[oid])
            if not isinstance(held, Unknown):
                seen[oid] = [*mark, not held]
            elif held.tried:
                seen[oid] = [*slow, dead, *([] if dead else [int(time.time()) + _RESTS_S]), None]
    return seen
