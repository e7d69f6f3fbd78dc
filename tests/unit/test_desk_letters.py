"""Letters are replayed in their order, a bounded number of bytes at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.config.pipeline import TableSpec
from headrace.config.request import Request
from headrace.model.change import Change, Origin
from headrace.model.letter import Letter, LetterId
from headrace.model.position import Position
from sinks.memory import MemorySink
from spark_jobs import desk
from spark_jobs.held import Holds, save_holds
from spark_jobs.letters import write_letters
from tests.support.small_table import TABLE, change
from tests.unit.test_desk_sweeps import desk_of
from tests.unit.test_table_trouble import OTHER, TABLES, of_other, refusing


def letter(offset: int, size: int) -> Letter:
    return Letter(LetterId("t", 1, 0, offset), "cache", "public.t", "C", "", None, 0, "", b"", bytes(size))


def test_letters_of_many_files_come_in_their_order_and_in_small_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, asked = desk_of(MemorySink, tmp_path, monkeypatch, threading.Lock())
    monkeypatch.setattr(desk, "_SLICE_BYTES", 100)
    written = {
        "b.avro": [letter(5, 60), letter(1, 30)],
        "a.avro": [letter(3, 500), letter(2, 70), letter(9, 1)],
    }
    for name, letters in written.items():
        write_letters(asked._spec.dead_letters / name, letters)
    wanted = {name: [one.id for one in letters if one.id.offset != 9] for name, letters in written.items()}
    places = {
        name: [(id_.topic, id_.epoch, id_.partition, id_.offset) for id_ in ids]
        for name, ids in wanted.items()
    }
    parts = [[one.id.offset for one in part] for part in asked._slices(Request(replay=places))]
    assert parts == [[1, 2], [3], [5]]


class _Decodes:
    """Makes of a letter of either table the change that it stands for."""

    def __init__(self, of: Callable[[int, int], Change]) -> None:
        self._of = of

    def decode_raw(self, origin: Origin, _key: bytes, _value: bytes) -> Change:
        return self._of(origin.offset, origin.offset)


def test_letters_of_a_table_in_trouble_keep_no_other_tables_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait on, and the trouble is told."""
    _, asked = desk_of(MemorySink, tmp_path, monkeypatch, threading.Lock())
    store = refusing()
    monkeypatch.setattr(desk, "sink_of", lambda _: (store, TABLES))
    monkeypatch.setattr(desk, "decoders", lambda _: {"t": _Decodes(change), "o": _Decodes(of_other)})
    other = TableSpec(topic="o", epoch=1, table=OTHER.as_dict())
    asked._spec = asked._spec.model_copy(update={"tables": (*asked._spec.tables, other)})
    monkeypatch.setattr(desk, "_SLICE_BYTES", 100)  # both tables are in each part
    letters = [
        Letter(LetterId(topic, 1, 0, n), "m", name, "C", f"for {n}", str(n), 0, "", b"", bytes(40))
        for n in (1, 2)
        for topic, name in (("o", str(OTHER.table)), ("t", str(TABLE)))
    ]
    write_letters(asked._spec.dead_letters / "a.avro", letters)
    holds = Holds()
    for one in letters:
        assert one.row is not None
        holds.hold(one.table, one.row, Position(1, one.id.offset).version)
    save_holds(asked._spec.checkpoint, holds)
    ids = [(one.id.topic, one.id.epoch, one.id.partition, one.id.offset) for one in letters]
    said = asked._answer(Request(replay={"a.avro": ids}))
    assert [(one["table"], one["code"]) for one in said["troubles"]] == [(str(TABLE), "GONE")]
    assert "shop" in said["troubles"][0]["hint"], "its hint names the source"
    assert said["rejects"] == [], "they wait on for what they waited for"
    assert said["waits"] == [["t", 0, 1], ["t", 0, 2]]
    assert said["behind"] == {str(TABLE): 2}
    assert len(list(store.scan(OTHER))) == 2
