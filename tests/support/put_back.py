"""A folder in which the engine works is put back to what a copy of it holds."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

__all__ = ["put_back"]


def put_back(folder: Path, copy: Path, aside: Path) -> None:
    """Put a copy in a folder's place; what was there goes ``aside`` for a moment, and then altogether."""
    beside = folder.with_name(f"{folder.name}.restored")
    shutil.copytree(copy, beside)
    while beside.exists():
        folder.rename(aside)
        with suppress(OSError):  # the engine has begun a file where the folder was
            beside.rename(folder)
        shutil.rmtree(aside)
