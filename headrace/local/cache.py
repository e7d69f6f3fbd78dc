"""The per-user content cache: files named by their sha256, verified, never half there."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.local.lockfile import Artefact
from headrace.model.errors import EnvironmentError_

__all__ = ["Cache", "cache_root", "write_atomically"]


def cache_root() -> Path:
    """Return the cache directory, made if missing: ``HEADRACE_CACHE``, else one per user.

    For root it is ``/var/cache/headrace``, because the account that
    Postgres runs under cannot read root's home.

    Raises:
        EnvironmentError_: ``CACHE_UNWRITABLE``.
    """
    own = os.environ.get("HEADRACE_CACHE")
    if own:
        root = Path(own).expanduser().absolute()
    elif os.geteuid() == 0:
        root = Path("/var/cache/headrace")
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentError_(
            f"The cache directory {root} cannot be made: {error.strerror}.",
            code="CACHE_UNWRITABLE",
            hint="Set HEADRACE_CACHE to a directory you may write.",
        ) from error
    return root


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write ``path`` so that a reader, or a power cut, sees the old content or the new, nothing between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        written = Path(name)
        written.chmod(mode)
        written.replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def sha256_of(path: Path) -> str:
    """Return the lower-case hex sha256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Cache:
    """Artefacts by content under ``root/artefacts``; several processes may use one cache at once.

    A file counts as present when its stamp (size and modification time noted after its hash was seen right)
    still matches; without such a stamp the whole content is hashed again. That keeps a warm start at a few
    ``stat`` calls and still notices a file that was cut, replaced or rewritten.
    """

    root: Path

    def path(self, artefact: Artefact) -> Path:
        """Return where ``artefact`` is or will be."""
        return self.root / "artefacts" / artefact.sha256[:16] / artefact.coordinate.filename

    def has(self, artefact: Artefact, *, full: bool = False) -> bool:
        """Say whether the right content is there; ``full`` hashes it whatever its stamp says."""
        path = self.path(artefact)
        try:
            stat = path.stat()
        except OSError:
            return False
        if stat.st_size != artefact.size:
            return False
        seen = f"{artefact.sha256} {stat.st_size} {stat.st_mtime_ns}"
        try:
            if not full and self._stamp(artefact).read_text(encoding="ascii") == seen:
                return True
        except (OSError, UnicodeDecodeError):
            pass
        if sha256_of(path) != artefact.sha256:
            return False
        # A cache that somebody else filled and we may only read is correct all the same, a little slower.
        with suppress(OSError):
            write_atomically(self._stamp(artefact), seen.encode("ascii"))
        return True

    def admit(self, artefact: Artefact, fetched: Path) -> bool:
        """Move a downloaded file in if its content is right; else delete it and say False."""
        if fetched.stat().st_size != artefact.size or sha256_of(fetched) != artefact.sha256:
            fetched.unlink()
            return False
        target = self.path(artefact)
        target.parent.mkdir(parents=True, exist_ok=True)
        fetched.chmod(0o644)
        with fetched.open("rb") as file:
            os.fsync(file.fileno())
        fetched.replace(target)
        stat = target.stat()
        seen = f"{artefact.sha256} {stat.st_size} {stat.st_mtime_ns}"
        write_atomically(self._stamp(artefact), seen.encode("ascii"))
        return True

    def _stamp(self, artefact: Artefact) -> Path:
        path = self.path(artefact)
        return path.with_name(f"{path.name}.seen")

    @contextmanager
    def locked(self, what: str = "lock") -> Iterator[None]:
        """Hold the cache, or a part of it; a second process waits here and then finds the files there.

        Args:
            what: The part's own lock, for who works on it while the whole is held.
        """
        with (self.root / what).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)
