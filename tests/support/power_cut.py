"""What a power cut leaves of a directory: only what was forced to the disk is sure to be there.

A file's bytes are sure once the file was forced; a name, its removal or a rename once the *directory* was.
Of everything else any part may be there: a name without its content, an old name beside the new one. That
is what POSIX allows. Most file systems lose less.

``os.fsync`` is watched while the code under test runs as it is; nothing of it is replaced. What SQLite forces
in its own way is not seen: its files are left out.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest

__all__ = ["Cut", "Disk"]

Tree: TypeAlias = "dict[str, Tree | bytes]"
_SQLITE = (".tombstones", ".tombstones-journal")


@dataclass(frozen=True, slots=True)
class _Node:
    """A file or directory: ``sure`` is what was forced of it last, ``now`` what readers see."""

    sure: bytes | dict[str, _Node]
    now: bytes | dict[str, _Node]


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment at which the power may fail.

    Attributes:
        promised: What the code had promised by then.
    """

    promised: object
    _root: _Node

    def leaves(self, target: Path, chance: random.Random | None = None) -> None:
        """Make ``target`` what is left: what is sure, and with ``chance`` some of the rest."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        _write(target, self._root, chance)


def _write(target: Path, node: _Node, chance: random.Random | None) -> None:
    assert isinstance(node.sure, dict)
    assert isinstance(node.now, dict)
    names = dict(node.sure)
    if chance is not None:
        for name in {**node.sure, **node.now}:
            if chance.random() < 0.5:
                if name in node.now:
                    names[name] = node.now[name]
                else:
                    del names[name]
    for name, child in names.items():
        if name.endswith(_SQLITE):
            continue
        if isinstance(child.now, dict):
            (target / name).mkdir()
            _write(target / name, child, chance)
            continue
        assert isinstance(child.sure, bytes)
        content = child.sure
        if chance is not None and child.sure != child.now:
            content = chance.choice([child.sure, b"", child.now[: len(child.now) // 2], child.now])
        (target / name).write_bytes(content)


@dataclass
class Disk:
    """A directory and what of it is sure.

    Args:
        root: The directory; it is empty, and sure.
        promised: Returns what has been promised by now.
    """

    root: Path
    promised: Callable[[], object] = lambda: None
    cuts: list[Cut] = field(default_factory=list)
    _files: dict[int, bytes] = field(default_factory=dict)
    _folders: dict[int, dict[str, int]] = field(default_factory=dict)
    _held: dict[int, int] = field(default_factory=dict)
    _read: dict[int, tuple[tuple[int, int], bytes]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note each time something is forced, and the moments just before and after it."""
        real = os.fsync
        self._hold(self.root)

        def fsync(descriptor: int) -> None:
            real(descriptor)
            with self._lock:
                self.cut()
                self._note(descriptor)
                self.cut()

        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "fsync", fsync)
                yield
        finally:
            for held in self._held.values():
                os.close(held)

    def cut(self) -> None:
        """Note this moment."""
        with self._lock:
            inode = self.root.stat().st_ino
            self.cuts.append(Cut(self.promised(), self._node(inode, self.root, {})))

    def _hold(self, path: Path) -> int:
        """Keep a file open, lest another gets its number; return its number."""
        found = path.stat()
        if found.st_ino not in self._held:
            self._held[found.st_ino] = os.open(path, os.O_RDONLY)
        return found.st_ino

    def _held_of(self, path: Path) -> int | None:
        try:
            return self._hold(path)
        except FileNotFoundError:
            return None  # removed by another thread since it was listed

    def _note(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        path = next((p for p in (self.root, *self.root.rglob("*")) if _is(p, found.st_ino)), None)
        if path is None:
            return  # elsewhere, or removed meanwhile
        self._hold(path)
        if stat.S_ISDIR(found.st_mode):
            held = {entry.name: self._held_of(entry) for entry in path.iterdir()}
            self._folders[found.st_ino] = {
                name: number for name, number in held.items() if number is not None
            }
        else:
            self._files[found.st_ino] = path.read_bytes()

    def _node(self, inode: int, path: Path | None, known: dict[int, _Node]) -> _Node:
        """Return what an inode is; ``path`` is where it is now, None where it is not any more."""
        if inode not in known:
            held = self._held[inode]
            mode = os.fstat(held).st_mode
            known[inode] = self._folder(inode, path, known) if stat.S_ISDIR(mode) else self._file(inode, held)
        return known[inode]

    def _file(self, inode: int, held: int) -> _Node:
        found = os.fstat(held)
        stamp = found.st_size, found.st_mtime_ns
        if self._read.get(inode, ((0, 0), b""))[0] != stamp:
            self._read[inode] = stamp, os.pread(held, found.st_size, 0)
        return _Node(self._files.get(inode, b""), self._read.get(inode, (stamp, b""))[1])

    def _folder(self, inode: int, path: Path | None, known: dict[int, _Node]) -> _Node:
        entries = {entry.name: entry for entry in path.iterdir()} if path else {}
        here = {name: n for name, entry in entries.items() if (n := self._held_of(entry)) is not None}
        places = {number: entries[name] for name, number in here.items()}
        sure = self._folders.get(inode, {})
        return _Node(
            {name: self._node(number, places.get(number), known) for name, number in sure.items()},
            {name: self._node(number, entries[name], known) for name, number in here.items()},
        )


def _is(path: Path, inode: int) -> bool:
    try:
        return path.stat().st_ino == inode
    except FileNotFoundError:
        return False
