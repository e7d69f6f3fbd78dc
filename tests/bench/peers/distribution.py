"""What a peer is made of, from Maven: downloaded once, held against its hash, unpacked beside the cache."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from headrace.local.cache import Cache, cache_root
from headrace.local.ivy import Ivy
from headrace.local.lockfile import Artefact
from headrace.local.mirrors import find_mirror
from headrace.local.unpack import unpacked

__all__ = ["distribution"]


def distribution(artefact: Artefact, extract: Callable[[Path, Path], None]) -> Path:
    """Return the unpacked distribution.

    Raises:
        RuntimeError: It cannot be had.
    """
    cache = Cache(cache_root())
    if not cache.has(artefact):
        with cache.locked(), tempfile.TemporaryDirectory(dir=cache.root) as work:
            target = Ivy(Path(work), find_mirror()).retrieve([artefact.coordinate])
            fetched = target / artefact.coordinate.organisation / artefact.coordinate.filename
            if not fetched.is_file() or not cache.admit(artefact, fetched):
                raise RuntimeError(f"{artefact.coordinate.filename} could not be downloaded")
    return unpacked(cache.path(artefact), extract)
