"""Deletion vectors: which rows of a data file are gone, in the Delta protocol's own bytes.

A vector is a 64-bit roaring bitmap array in the portable format: a magic number, the count of 32-bit
bitmaps, and each with its high word. Data files here have fewer than 2³² rows, so there is one bitmap.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from sinks.delta.files import sync

__all__ = ["write_vectors"]

_MAGIC = 1_681_511_377
_NO_RUNS = 12_346
_ARRAY_LIMIT = 4_096
_VERSION = b"\x01"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _z85(data: bytes) -> str:
    """Return Base85 as ZeroMQ and Delta spell it; the length has to be a multiple of four."""
    text = []
    for (word,) in struct.iter_unpack(">I", data):
        digits = ""
        for _ in range(5):
            word, rest = divmod(word, 85)
            digits = _Z85[rest] + digits
        text.append(digits)
    return "".join(text)


def _bitmap(rows: np.ndarray) -> bytes:
    """Return a 32-bit roaring bitmap of ascending row numbers, without run containers."""
    high, low = (rows >> 16).astype("<u2"), (rows & 0xFFFF).astype("<u2")
    names, starts = np.unique(high, return_index=True)
    ends = [*starts[1:].tolist(), len(rows)]
    described, offsets, bodies = [], [], []
    offset = 8 + 8 * len(names)
    for name, start, end in zip(names.tolist(), starts.tolist(), ends, strict=True):
        if end - start <= _ARRAY_LIMIT:
            body = low[start:end].tobytes()
        else:
            bits: np.ndarray = np.zeros(1 << 16, np.uint8)
            bits[low[start:end]] = 1
            body = np.packbits(bits, bitorder="little").tobytes()
        described.append(struct.pack("<HH", name, end - start - 1))
        offsets.append(struct.pack("<I", offset))
        bodies.append(body)
        offset += len(body)
    return b"".join([struct.pack("<II", _NO_RUNS, len(names)), *described, *offsets, *bodies])


def _vector(rows: np.ndarray) -> bytes:
    return struct.pack("<iqI", _MAGIC, 1, 0) + _bitmap(rows)


def write_vectors(directory: Path, deleted: list[np.ndarray]) -> list[dict[str, Any]]:
    """Write the vectors of several data files as one new file; return their descriptors for the log.

    Args:
        directory: The table's.
        deleted: For each data file all its deleted rows, ascending.

    Raises:
        OSError: The disk refuses; nothing is left behind.
    """
    name = uuid.uuid4()
    content = bytearray(_VERSION)
    descriptors = []
    for rows in deleted:
        vector = _vector(rows)
        descriptors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": _z85(name.bytes),
                "offset": len(content),
                "sizeInBytes": len(vector),
                "cardinality": len(rows),
            }
        )
        content += struct.pack(">i", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    path = directory / f"deletion_vector_{name}.bin"
    try:
        path.write_bytes(content)
        sync(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return descriptors
