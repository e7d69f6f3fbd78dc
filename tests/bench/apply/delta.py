"""Delta: the sink against deltalake's append and MERGE of ready-made Arrow tables.

    python -m tests.bench.apply.delta [rounds]

measures the lake alone and prints one JSON object.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, Schema, write_deltalake

from headrace.model.change import Change, Op
from headrace.model.outcome import APPLIED
from headrace.observe.disk import sync
from sinks.delta import DeltaSink
from sinks.delta.encode import encode
from sinks.delta.keys import key_ids
from sinks.delta.shape import KEY, VERSION, shape_of
from tests.bench.apply.cpu import Sampler
from tests.bench.apply.products import SCHEMA, Batches
from tests.bench.apply.rounds import Side

__all__ = ["delta_sides"]

_KINDS = {
    ("model/key.py", "*"): "keys",
    ("delta/keys.py", "*"): "keys",
    ("delta/index.py", "*"): "finding rows",
    ("delta/judge.py", "*"): "decisions",
    ("delta/tombstones.py", "*"): "tombstones",
    ("delta/encode.py", "*"): "rows to Arrow",
    ("delta/files.py", "parts"): "reading files",
    ("delta/files.py", "sync_all"): "forcing to disk",
    ("delta/files.py", "*"): "writing files",
    ("delta/draft.py", "add"): "gathering rows",
    ("delta/log.py", "*"): "commit",
    ("delta/table.py", "*"): "commit",
    ("delta/replaced.py", "*"): "replaced files",
    ("delta/writer.py", "*"): "loop",
}
_SAME_KEY = f"target.{KEY} = source.{KEY}"
_NOT_OLDER = f"source.{VERSION} >= target.{VERSION}"


def _content(path: Path) -> dict[str, Any]:
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return {row[KEY]: row for row in rows}


class _Ours:
    name = "ours"

    def __init__(self, root: Path, work: Batches) -> None:
        self.sampler: Sampler | None = Sampler(_KINDS)
        self._root = root
        self._work = work

    def open(self) -> None:
        self._sink = DeltaSink("bench", DeltaSink.Config(path=self._root))
        self._sink.prepare(SCHEMA)

    def write(self, phase: str, number: int) -> None:
        outcomes = self._sink.apply(SCHEMA, self._work[phase][number])
        assert all(outcome is APPLIED for outcome in outcomes)

    def content(self) -> dict[str, Any]:
        return _content(Path(self._sink.target(SCHEMA).facts["path"]))

    def close(self) -> None:
        self._sink.close()
        shutil.rmtree(self._root, ignore_errors=True)


class _Raw:
    """New rows are appended, or merged where versions are compared; the rest is merged.

    ``forced`` is ``plain``, but its files are on the disk for good when a write is over, as the sink's are;
    ``made`` is ``forced``, but it is given what the sink is given: changes, of which it makes rows first.
    """

    sampler: Sampler | None = None

    def __init__(self, root: Path, work: Batches, name: str) -> None:
        self.name = name
        self._path = root / name
        self._changes = work
        self._work = {phase: [_arrow(batch) for batch in some] for phase, some in work.items()}

    def open(self) -> None:
        self._path.mkdir(parents=True)
        self._table = DeltaTable.create(str(self._path), schema=Schema.from_arrow(shape_of(SCHEMA).arrow))
        self._forced = set(self._files())

    def _files(self) -> Iterator[str]:
        for directory in (self._path, self._path / "_delta_log"):
            yield from (entry.path for entry in os.scandir(directory) if entry.is_file())

    def write(self, phase: str, number: int) -> None:
        made = self.name == "made"
        self._write(phase, _arrow(self._changes[phase][number]) if made else self._work[phase][number])
        if made or self.name == "forced":
            new = set(self._files()) - self._forced
            for path in new:
                sync(Path(path))
            self._forced |= new

    def _write(self, phase: str, rows: pa.Table) -> None:
        guarded = self.name == "guarded"
        if phase == "insert" and not guarded:
            write_deltalake(self._table, rows, mode="append")
            return
        merge = self._table.merge(rows, _SAME_KEY, source_alias="source", target_alias="target")
        newer = _NOT_OLDER if guarded else None
        if phase == "delete":
            merge.when_matched_delete(newer).execute()
        else:
            merge.when_matched_update_all(newer).when_not_matched_insert_all().execute()

    def content(self) -> dict[str, Any]:
        return _content(self._path)

    def close(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def _arrow(batch: list[Change]) -> pa.Table:
    keys = key_ids([change.key.parts for change in batch])
    versions: np.ndarray = np.array([change.position.version for change in batch], np.int64)
    rows, rejected = encode(shape_of(SCHEMA), batch, keys, versions)
    assert not rejected
    return rows.select([KEY, VERSION]) if batch[0].op is Op.DELETE else rows


@contextmanager
def delta_sides(work: Batches) -> Iterator[list[Side]]:
    """Yield the ways of writing to a lake."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        root = Path(directory)
        raw = [_Raw(root, work, name) for name in ("guarded", "plain", "forced", "made")]
        yield [_Ours(root / "ours", work), *raw]
