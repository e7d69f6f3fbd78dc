"""What a row had under its old key, from the batch that deletes it to the batch that creates it anew.

A changed key arrives as two records, a delete and a create, and the create lacks the large values that did
not change. When a batch ends between the two, they are gone from the sink before they are asked for. So
before a batch applies a delete that is the last record of its partition, it keeps the row here.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.config.pipeline import write_private
from headrace.model.change import Origin
from headrace.model.key import Key
from headrace.model.schema import TableId
from spark_jobs.moves import Burial

__all__ = ["Carried", "Carry", "NoCarry", "topic_of"]

_BYTES = "%bytes"


@dataclass(frozen=True, slots=True)
class Carried:
    """A row kept by an earlier batch.

    Args:
        name: Of the file that holds it.
        table: Its table.
        lsn: Of the key change, if it was one.
        burial: The row.
    """

    name: str
    table: TableId
    lsn: int
    burial: Burial


class Carry:
    """The kept rows of one sink, one small private file each, by partition and offset of the delete.

    Args:
        folder: Beside the checkpoint; missing as long as nothing was kept.
        begins: (topic, partition) → the first offset that is applied now. Whoever applies it again sees
            what was seen before.
    """

    def __init__(self, folder: Path, begins: Mapping[tuple[str, int], int]) -> None:
        self._folder = folder
        self._begins = {f"{topic}-{partition}": begin for (topic, partition), begin in begins.items()}

    def kept(self) -> dict[tuple[str, int], Carried]:
        """Return, by topic and partition, the row that was kept last before what is applied now."""
        newest: dict[str, tuple[int, Path]] = {}
        for path in self._folder.glob("*.json"):
            place, _, offset = path.stem.rpartition("@")
            if newest.get(place, (-1, path))[0] < int(offset) < self._begins.get(place, 0):
                newest[place] = int(offset), path
        return dict(_load(path) for _, path in newest.values())

    def keep(self, origin: Origin, table: TableId, burial: Burial) -> None:
        """Keep the row that a delete is about to remove; what an earlier try of it kept stays."""
        path = self._folder / f"{origin.topic}-{origin.partition}@{origin.offset}.json"
        if path.exists() or not burial.row:
            return
        content = {
            "topic": origin.topic,
            "partition": origin.partition,
            "lsn": origin.lsn,
            "table": [table.schema, table.name],
            "key": burial.key.parts,
            "row": burial.row,
        }
        write_private(path, json.dumps(content, default=_encode))

    def discard(self, names: Iterable[str]) -> None:
        """Remove what the settled batch has used."""
        for name in names:
            (self._folder / name).unlink(missing_ok=True)


def topic_of(name: str) -> str:
    """Return the topic that a kept row's file is of."""
    return name.rpartition("@")[0].rpartition("-")[0]


class NoCarry(Carry):
    """Keeps nothing and has nothing: for records that are not a query's batch."""

    def __init__(self) -> None:
        super().__init__(Path(), {})

    def kept(self) -> dict[tuple[str, int], Carried]:
        """Return nothing."""
        return {}

    def keep(self, origin: Origin, table: TableId, burial: Burial) -> None:
        """Keep nothing."""


def _load(path: Path) -> tuple[tuple[str, int], Carried]:
    content = json.loads(path.read_text(), object_hook=_decode)
    burial = Burial(Key.of(content["key"]), content["row"])
    carried = Carried(path.name, TableId(*content["table"]), content["lsn"], burial)
    return (content["topic"], content["partition"]), carried


def _encode(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {_BYTES: b64encode(value).decode("ascii")}
    raise TypeError(f"a row holds no {type(value).__name__}")


def _decode(value: dict[str, Any]) -> Any:
    return b64decode(value[_BYTES]) if value.keys() == {_BYTES} else value
