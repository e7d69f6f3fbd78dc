"""Where a row's state came from, as members of a JSON object, for the stores that keep it beside the row."""

from __future__ import annotations

from functools import lru_cache

import orjson

from headrace.model.change import Origin

__all__ = ["KNOWN", "origin_members", "place"]

# Spelled by hand: building a dictionary for a library to spell takes longer.
KNOWN = b'%b%d,"lsn":%d,"tx":%d,"committed_ms":%d'
"""What :func:`origin_members` gives, of a :func:`place`, an offset, and three numbers that are known."""

_UNKNOWN = b'%b%d,"lsn":%b,"tx":%b,"committed_ms":%b'


@lru_cache(maxsize=1024)
def place(topic: str, partition: int) -> bytes:
    """Return ``"topic":…,"partition":…,"offset":``."""
    return b'"topic":%b,"partition":%d,"offset":' % (orjson.dumps(topic), partition)


def origin_members(origin: Origin) -> bytes:
    """Return ``"topic":…,"partition":…,"offset":…,"lsn":…,"tx":…,"committed_ms":…``."""
    lsn, tx, committed = origin.lsn, origin.tx, origin.committed_ms
    where = place(origin.topic, origin.partition)
    if lsn is None or tx is None or committed is None:
        return _UNKNOWN % (where, origin.offset, *map(orjson.dumps, (lsn, tx, committed)))
    return KNOWN % (where, origin.offset, lsn, tx, committed)
