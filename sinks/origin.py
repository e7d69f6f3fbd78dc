"""Where a row's state came from, as members of a JSON object, for the stores that keep it beside the row."""

from __future__ import annotations

from functools import lru_cache

import orjson

from headrace.model.change import Origin

__all__ = ["origin_members", "origin_text"]


@lru_cache(maxsize=1024)
def _place(topic: str, partition: int) -> str:
    return f'"topic":{orjson.dumps(topic).decode()},"partition":{partition},"offset":'


def _known(value: int | None) -> int | str:
    return "null" if value is None else value


def origin_text(origin: Origin) -> str:
    """Return ``"topic":…,"partition":…,"offset":…,"lsn":…,"tx":…,"committed_ms":…``."""
    # Spelled by hand: building a dictionary for a library to spell takes longer.
    place, lsn, tx, committed = (
        _place(origin.topic, origin.partition),
        origin.lsn,
        origin.tx,
        origin.committed_ms,
    )
    if lsn is None or tx is None or committed is None:
        lsn, tx, committed = _known(lsn), _known(tx), _known(committed)  # type: ignore[assignment]
    return f'{place}{origin.offset},"lsn":{lsn},"tx":{tx},"committed_ms":{committed}'


def origin_members(origin: Origin) -> bytes:
    """Return :func:`origin_text` as UTF-8."""
    return origin_text(origin).encode()
