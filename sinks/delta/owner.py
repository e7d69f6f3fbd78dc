"""Whose a lake's directory is: the first sink that prepares a table in it signs for it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from headrace.model.errors import SinkError
from headrace.observe.disk import make_folder, sync
from sinks.delta.config import ASIDE

__all__ = ["own", "owner_of"]


def owner_of(root: Path) -> str | None:
    """Return the name of the sink that owns the directory; None when nobody does."""
    try:
        return (root / ASIDE / "owner").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def own(root: Path, name: str) -> None:
    """Sign for the directory, unless that was done.

    Raises:
        SinkError: Another sink owns it (``DELTA_PATH_TAKEN``).
        OSError: The disk refuses.
    """
    owner = root / ASIDE / "owner"
    make_folder(owner.parent)
    try:
        # Named before it is there, so that nobody ever reads an unsigned claim.
        with tempfile.NamedTemporaryFile("w", dir=owner.parent, encoding="utf-8") as claim:
            claim.write(name)
            claim.flush()
            os.fchmod(claim.fileno(), 0o644)
            os.fsync(claim.fileno())
            os.link(claim.name, owner)
        sync(owner.parent)
    except FileExistsError:
        if (found := owner_of(root)) != name:
            raise SinkError(
                f"The lake's directory {root} belongs to the sink “{found}”.",
                code="DELTA_PATH_TAKEN",
                hint="Give each sink its own directory.",
            ) from None
