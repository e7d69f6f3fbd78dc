"""What has to outlive a power cut: forced to the disk, its name too."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["make_folder", "sync"]


def sync(path: Path) -> None:
    """Force a file's content, or a directory's names, to the disk.

    Raises:
        OSError: The disk refuses; what was written may be lost.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a directory, and those above it that are missing; their names are on the disk for good.

    Raises:
        OSError: The disk refuses.
    """
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(mode=mode, exist_ok=True)
        sync(folder.parent)
