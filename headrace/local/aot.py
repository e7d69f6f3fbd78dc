"""Ahead-of-time caches: what a JVM learnt in one start, so that the next takes half the time and processor.

A cache belongs to one Java, one class path and one set of options; its name is a hash of them, so a new
version of anything means a new cache. It is made by :mod:`headrace.local.training` and only ever speeds
things up: without one, or with one the JVM does not accept, a server starts all the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.local.cache import cache_root, write_atomically
from headrace.local.java import java_home, java_version

__all__ = ["MINIMUM_JAVA", "AotCache"]

MINIMUM_JAVA = 25
"""The first Java that writes such a cache in one step."""

_KEPT = 2
"""Caches of one server that stay: two clones of a user, each with its own Java, do not undo each other's."""


@dataclass(frozen=True, slots=True)
class AotCache:
    """The cache of one server's JVM.

    Attributes:
        path: Where it is or will be.
    """

    path: Path

    @classmethod
    def of(cls, server: str, jars: Sequence[Path], options: Sequence[str]) -> AotCache | None:
        """Return the place of a server's cache; None if this Java cannot make one."""
        home = java_home()
        if java_version(home) < MINIMUM_JAVA:
            return None
        release = home / "release"
        # The JVM compares size and time of every jar, so they are part of what a cache belongs to.
        stamps = [(str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars]
        facts = [str(home), release.read_text() if release.is_file() else "", stamps, list(options)]
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
        return cls(cache_root() / "aot" / f"{server}-{key}.aot")

    @property
    def draft(self) -> Path:
        """Where a training run writes it."""
        return self.path.with_suffix(".new")

    @property
    def _stamp(self) -> Path:
        return self.path.with_suffix(".seen")

    def usable(self) -> bool:
        """Say whether it is there and is the file that training left."""
        try:
            return self._stamp.read_text(encoding="ascii") == _facts(self.path)
        except OSError:
            return False

    def options(self, *, training: bool) -> list[str]:
        """Return the JVM's options to use the cache if there is one, or to write it."""
        if training:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return [f"-XX:AOTCacheOutput={self.draft}"]
        return [f"-XX:AOTCache={self.path}"] if self.usable() else []

    def admit(self) -> bool:
        """Take what a training run wrote into use; say whether there was anything."""
        if not self.draft.is_file():
            return False
        self.draft.replace(self.path)
        write_atomically(self._stamp, _facts(self.path).encode("ascii"))
        server = self.path.name.rpartition("-")[0]
        every = [AotCache(path) for path in self.path.parent.glob(f"{server}-*.aot")]
        every.sort(key=lambda cache: cache.path.stat().st_mtime_ns, reverse=True)
        for old in every[_KEPT:]:
            old.forget()
        return True

    def forget(self) -> None:
        """Delete it, so that the next start does without and the next training makes it anew."""
        self._stamp.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)


def _facts(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"
