"""Ids of many keys at once: as :attr:`Key.id` gives them, a column of parts at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.key import SEPARATOR, Key, escape

__all__ = ["key_ids"]

_ESCAPED: np.ndarray = np.array([byte < 128 and escape(chr(byte)) != chr(byte) for byte in range(256)])
"""Byte of UTF-8 → whether a key spells it differently."""


def key_ids(keys: Sequence[tuple[str | None, ...]]) -> pa.Array:
    """Return the id of each key of one table, given the parts of each."""
    width = len(keys[0]) if keys else 1
    columns = [pa.array([parts[n] for parts in keys], pa.string()) for n in range(width)]
    ids = columns[0] if width == 1 else pc.binary_join_element_wise(*columns, SEPARATOR)
    odd = np.unique(np.concatenate([_odd(column) for column in columns]))
    if len(odd):
        exact = pa.array([Key(keys[number]).id for number in odd.tolist()], pa.string())
        mask: np.ndarray = np.zeros(len(keys), np.bool_)
        mask[odd] = True
        ids = pc.replace_with_mask(ids, pa.array(mask), exact)
    return ids


def _odd(column: pa.Array) -> np.ndarray:
    """Return the numbers of the parts that are not spelled in a key as they are: NULL and "" too."""
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    found = np.diff(bounds) == 0
    if data is not None:
        content = np.frombuffer(data, np.uint8)[: bounds[-1]]
        places = np.flatnonzero(_ESCAPED[content])
        found[np.searchsorted(bounds, places, side="right") - 1] = True
    return np.flatnonzero(found)
