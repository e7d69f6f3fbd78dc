"""Archives from the cache, unpacked beside it once and shared by every stack of this user."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from headrace.local.account import Account, passes
from headrace.local.cache import Cache, cache_root

__all__ = ["reachable", "safe_extract_tar", "unpacked"]

_MANIFEST = "headrace-manifest.json"


def safe_extract_tar(archive: tarfile.TarFile, target: Path) -> None:
    """Extract a tar archive; refuse members that would leave ``target``."""
    if hasattr(tarfile, "tar_filter"):
        archive.extractall(target, filter="tar")
        return
    # Pythons without extraction filters; the archive's hash is locked, so this is a second line only.
    inside = target.resolve()
    for member in archive.getmembers():
        if not (target / member.name).resolve().is_relative_to(inside):
            raise tarfile.TarError(f"{member.name} leads out of the archive")
    archive.extractall(target)  # noqa: S202 - every member was checked


def _survey(directory: Path) -> dict[str, list[int]]:
    """Return size and modification time of every file below a directory."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.name != _MANIFEST:
            stat = path.lstat()
            found[str(path.relative_to(directory))] = [stat.st_size, stat.st_mtime_ns]
    return found


def _intact(directory: Path) -> bool:
    try:
        noted = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(noted == _survey(directory))


def unpacked(archive: Path, extract: Callable[[Path, Path], None]) -> Path:
    """Return the directory with an archive's content, unpacking it if it is missing or was damaged.

    Args:
        archive: A verified file of the cache; the name of its directory is part of its hash.
        extract: Called with the archive and an empty directory to fill.
    """
    root = cache_root() / "unpacked"
    target = root / f"{archive.name}-{archive.parent.name}"
    if _intact(target):
        return target
    with Cache(cache_root()).locked():
        if _intact(target):
            return target
        root.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=root))
        try:
            extract(archive, fresh)
            # For the account that Postgres runs under, whatever this user's umask is.
            for directory in [root, fresh, *(path for path in fresh.rglob("*") if path.is_dir())]:
                directory.chmod(0o755)
            (fresh / _MANIFEST).write_text(json.dumps(_survey(fresh)), encoding="utf-8")
            if target.exists():
                # Moved aside first: a server that still runs from it keeps the files it has open.
                target.rename(fresh.with_name(f"{fresh.name}.old"))
            fresh.rename(target)
        finally:
            for left in (fresh, fresh.with_name(f"{fresh.name}.old")):
                shutil.rmtree(left, ignore_errors=True)
    return target


def reachable(account: Account, place: Path) -> Path:
    """Return a program or its directory where an account can reach it: as it is, or a copy in the cache.

    An environment below a home directory that is closed to others is the usual case for a copy.
    """
    if passes(account, place if place.is_dir() else place.parent):
        return place
    facts = f"{place.resolve()} {place.stat().st_size} {place.stat().st_mtime_ns}"
    target = cache_root() / "programs" / hashlib.sha256(facts.encode()).hexdigest()[:16] / place.name
    if target.exists():
        return target
    # A download holds the cache, and runs a Java that may have to be copied first.
    with Cache(cache_root()).locked("programs.lock"):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(dir=target.parent)) / place.name
            (shutil.copytree if place.is_dir() else shutil.copy2)(place, fresh)
            for folder in (cache_root(), target.parent.parent, target.parent):
                folder.chmod(0o755)
            fresh.rename(target)
            fresh.parent.rmdir()
    return target


def extract_zip(archive: Path, target: Path) -> None:
    """Extract a zip archive; Python's own refuses members that would leave ``target``."""
    with zipfile.ZipFile(archive) as content:
        content.extractall(target)  # noqa: S202
