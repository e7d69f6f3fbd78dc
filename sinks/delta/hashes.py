"""Numbers that stand for texts: equal for equal texts, and hardly ever for others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ["equal_pairs", "hashes"]

_WORD = 8
_MOST = 256
"""Bytes of a text that count; texts that differ behind them only have the same number."""
_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)


def hashes(texts: pa.Array) -> np.ndarray:
    """Return 64 bits for each text; none may be NULL."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    content: np.ndarray = np.zeros(bounds[-1] - bounds[0] + _WORD, np.uint8)
    if data is not None:
        content[:-_WORD] = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    # The eight bytes that begin at each byte, as a number.
    words: np.ndarray = np.ndarray((len(content) - _WORD + 1,), "<u8", content.data, strides=(1,))
    starts, lengths = bounds[:-1] - bounds[0], np.diff(bounds)
    found: np.ndarray = lengths.astype(np.uint64) * _FACTORS[0]
    for begin in range(0, min(int(lengths.max(initial=0)), _MOST), _WORD):
        longer = slice(None) if lengths.min() > begin else np.flatnonzero(lengths > begin)
        word = words[starts[longer] + begin] & _FIRST_BYTES[np.minimum(lengths[longer] - begin, _WORD)]
        mixed = (found[longer] ^ word) * _FACTORS[1]
        found[longer] = mixed ^ (mixed >> np.uint64(29))
    found *= _FACTORS[0]
    return found


def equal_pairs(some: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of every pair of equal numbers; both arrays are ascending."""
    if len(some) > len(others):
        second, first = equal_pairs(others, some)
        return first, second
    found: np.ndarray = np.arange(0)
    left = np.asarray(np.searchsorted(others, some, "left"))
    if len(some):
        found = np.flatnonzero(others.take(left, mode="clip") == some)
    left = left[found]
    counts = np.asarray(np.searchsorted(others, some[found], "right")) - left
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(found, counts), np.repeat(left, counts) + within
