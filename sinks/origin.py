"""Where a row's state came from, as members of a JSON object, for the stores that keep it beside the row."""

from __future__ import annotations

from functools import lru_cache

import orjson

from headrace.model.change import Origin

__all__ = ["origin_members"]

# Spelled by hand: building a dictionary for a library to spell takes longer.
_MEMBERS = b'"topic":%b,"partition":%d,"offset":%d,"lsn":%d,"tx":%d,"committed_ms":%d'
_UNKNOWN = _MEMBERS.replace(b'"lsn":%d,"tx":%d,"committed_ms":%d', b'"lsn":%b,"tx":%b,"committed_ms":%b')


@lru_cache(maxsize=1024)
def _topic(name: str) -> bytes:
    return orjson.dumps(name)


def origin_members(origin: Origin) -> bytes:
    """Return ``"topic":…,"partition":…,"offset":…,"lsn":…,"tx":…,"committed_ms":…``."""
    lsn, tx, committed = origin.lsn, origin.tx, origin.committed_ms
    place = (_topic(origin.topic), origin.partition, origin.offset)
    if lsn is None or tx is None or committed is None:
        return _UNKNOWN % (*place, orjson.dumps(lsn), orjson.dumps(tx), orjson.dumps(committed))
    return _MEMBERS % (*place, lsn, tx, committed)
