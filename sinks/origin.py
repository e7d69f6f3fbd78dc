"""Where a row's state came from, as members of a JSON object, for the stores that keep it beside the row."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from headrace.model.change import Origin

__all__ = ["origin_members", "origin_texts"]


def _known(value: int | None) -> int | str:
    return "null" if value is None else value


def origin_texts(origins: Iterable[Origin]) -> list[str]:
    """Return for each ``"topic":…,"partition":…,"offset":…,"lsn":…,"tx":…,"committed_ms":…``."""
    # Spelled by hand: building a dictionary for a library to spell takes longer.
    texts: list[str] = []
    topic: str | None = None
    partition, place = -1, ""
    for origin in origins:
        # Neighbours come from one partition, as a rule.
        if origin.partition != partition or origin.topic != topic:
            topic, partition = origin.topic, origin.partition
            place = f'"topic":{orjson.dumps(topic).decode()},"partition":{partition},"offset":'
        lsn, tx, committed = origin.lsn, origin.tx, origin.committed_ms
        if lsn is None or tx is None or committed is None:
            lsn, tx, committed = _known(lsn), _known(tx), _known(committed)  # type: ignore[assignment]
        texts.append(f'{place}{origin.offset},"lsn":{lsn},"tx":{tx},"committed_ms":{committed}')
    return texts


def origin_members(origin: Origin) -> bytes:
    """Return one of :func:`origin_texts` as UTF-8."""
    return origin_texts((origin,))[0].encode()
