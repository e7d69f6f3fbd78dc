"""Small files that something relies on are there after a power cut, whole, once writing has returned."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.config.pipeline import write_private
from headrace.model.letter import Letter, LetterId
from spark_jobs.held import Holds, load_holds, save_holds
from spark_jobs.letters import read_letters, write_letters
from tests.support.power_cut import Disk


def private(root: Path, number: int) -> None:
    write_private(root / "a" / "b" / "spec.json", f"content {number} " * 50)


def read_private(root: Path) -> str:
    return (root / "a" / "b" / "spec.json").read_text()


def holds(root: Path, number: int) -> None:
    found = Holds()
    for row in range(number + 1):
        found.hold("public.t", f"row {row}", row)
    save_holds(root / "checkpoint", found)


def read_holds(root: Path) -> object:
    return load_holds(root / "checkpoint").held


def letters(root: Path, number: int) -> None:
    written = [
        Letter(LetterId("t", 1, 0, n), "lake", "public.t", "X", "why", f"{n}", n, "{}", b"k", b"v" * 100, ())
        for n in range(number + 1)
    ]
    write_letters(root / "letters" / "lake" / "query-000000000001.avro", written)


def read_the_letters(root: Path) -> object:
    return list(read_letters(root / "letters" / "lake" / "query-000000000001.avro"))


KINDS = {
    "private": (private, read_private),
    "holds": (holds, read_holds),
    "letters": (letters, read_the_letters),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_written_is_there_whole(tmp_path: Path, kind: str) -> None:
    write, read = KINDS[kind]
    promises: list[object] = [None]
    disk = Disk(tmp_path / "disk", lambda: len(promises) - 1)
    disk.root.mkdir()
    with disk.watched():
        for number in range(3):
            write(disk.root, number)
            promises.append(read(disk.root))
            disk.cut()
    for cut in disk.cuts:
        for seed in (None, *range(8)):
            cut.leaves(tmp_path / "after", None if seed is None else random.Random(seed))
            found = _found(read, tmp_path / "after", promises[0] if kind != "holds" else {})
            assert isinstance(cut.promised, int)
            # The last that was promised, or already the one under way; never a piece of one.
            allowed = [
                ({} if kind == "holds" else None) if n == 0 else promises[n]
                for n in (cut.promised, cut.promised + 1)
                if n < len(promises)
            ]
            assert found in allowed, (kind, cut.promised, seed)


def _found(read: Callable[[Path], object], root: Path, nothing: object) -> object:
    try:
        return read(root)
    except FileNotFoundError:
        return nothing
