"""Letters are replayed in their order, a bounded number of bytes at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headrace.config.request import Request
from headrace.model.letter import Letter, LetterId
from sinks.memory import MemorySink
from spark_jobs import desk
from spark_jobs.letters import write_letters
from tests.unit.test_desk_sweeps import desk_of


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
