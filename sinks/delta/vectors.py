"""Deletion vectors: which rows of a data file are gone, in the Delta protocol's own bytes.

A vector is a 64-bit roaring bitmap array in the portable format: a magic number, the count of 32-bit
bitmaps, and each with its high word. Data files here have fewer than 2³² rows, so there is one bitmap.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from headrace.observe.disk import sync
from sinks.delta.log import lines_of
from sinks.delta.trouble import LogGap

__all__ = ["hidden_rows", "vector_end", "vector_file", "write_vectors"]

_MAGIC = 1_681_511_377
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_Z85_UUID = 20
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


def vector_file(vector: Mapping[str, Any] | None) -> str | None:
    """Return the file a vector's descriptor names, relative to the table; None when it names none."""
    if vector is None or vector.get("storageType") != "u":
        return None
    return _file_of(str(vector["pathOrInlineDv"]))


def vector_end(vector: Mapping[str, Any]) -> int:
    """Return how long the file that a vector's descriptor names is at least; around it are length and sum."""
    return int(vector.get("offset") or len(_VERSION)) + 4 + int(vector["sizeInBytes"]) + 4


@lru_cache(65_536)
def _file_of(text: str) -> str:
    folder, name = text[:-_Z85_UUID], text[-_Z85_UUID:]
    numbers = (name[start : start + 5] for start in range(0, _Z85_UUID, 5))
    words = [sum(_Z85.index(digit) * 85 ** (4 - n) for n, digit in enumerate(word)) for word in numbers]
    file = f"deletion_vector_{uuid.UUID(bytes=struct.pack('>4I', *words))}.bin"
    return f"{folder}/{file}" if folder else file


def hidden_rows(delta: DeltaTable) -> Iterator[tuple[str, np.ndarray, Mapping[str, Any]]]:
    """Yield path, deleted rows and descriptor of each file of a table that has a deletion vector.

    The library gives the rows; the descriptors are read from the log. Nothing is written.

    Raises:
        LogGap: The log does not have what the library has read there.
    """
    deleted = dict(_deleted_rows(delta))
    if not deleted:
        return
    log = Path(unquote(urlsplit(delta.table_uri).path)) / "_delta_log"
    descriptors = _descriptors(log, int(delta.version()))
    for path, rows in deleted.items():
        if path not in descriptors:
            raise LogGap(path)
        yield path, rows, descriptors[path]


def _deleted_rows(delta: DeltaTable) -> Iterator[tuple[str, np.ndarray]]:
    root = urlsplit(delta.table_uri).path.rstrip("/") + "/"
    for batch in pa.table(delta.deletion_vectors()).to_batches():
        paths, masks = batch.column("filepath"), batch.column("selection_vector")
        for number, path in enumerate(paths.to_pylist()):
            keep = masks[number].values.to_numpy(zero_copy_only=False)
            yield unquote(urlsplit(path).path.removeprefix(root)), np.flatnonzero(~keep)


def _descriptors(log: Path, version: int) -> dict[str, Mapping[str, Any]]:
    """Return path → descriptor of every file that has one in a version."""
    begin, found = _checkpointed(log, version)
    for number in range(begin + 1, version + 1):
        try:
            lines = lines_of(log / f"{number:020d}.json")
        except FileNotFoundError as error:
            raise LogGap(f"version {number}") from error
        actions = [json.loads(line) for line in lines]
        for action in actions:
            if gone := action.get("remove"):
                found.pop(gone["path"], None)
        for action in actions:
            if (add := action.get("add")) and add.get("deletionVector"):
                found[add["path"]] = add["deletionVector"]
    return found


def _checkpointed(log: Path, version: int) -> tuple[int, dict[str, Mapping[str, Any]]]:
    """Return the version of the newest checkpoint, -1 for none, and what it says of vectors."""
    parts: dict[int, list[Path]] = {}
    for path in log.glob("*.checkpoint*.parquet"):
        if (name := _CHECKPOINT.fullmatch(path.name)) and int(name[1]) <= version:
            parts.setdefault(int(name[1]), []).append(path)
    whole = [number for number, paths in parts.items() if len(paths) == _parts(paths[0])]
    if not whole:
        return -1, {}
    found: dict[str, Mapping[str, Any]] = {}
    for path in parts[max(whole)]:
        with pq.ParquetFile(path) as source:
            names = source.schema_arrow.field("add").type
            if names.get_field_index("deletionVector") < 0:
                continue
            adds = source.read(columns=["add.path", "add.deletionVector"])["add"].to_pylist()
        for add in adds:
            vector = add and add.get("deletionVector")
            if add and vector and vector.get("storageType"):
                found[add["path"]] = {name: value for name, value in vector.items() if value is not None}
    return max(whole), found


def _parts(path: Path) -> int:
    name = _CHECKPOINT.fullmatch(path.name)
    return int(name[2]) if name and name[2] else 1
