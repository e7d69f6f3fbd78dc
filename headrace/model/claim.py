"""Who may write to a table's target: whoever said so last."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Claim"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A mark beside the data; one that finds another there than its own has to stop.

    Args:
        holder: Random, and new every time somebody begins to write.
        sink: The sink's name.
        home: The installation it is registered in.
        engine: Whether a query holds it; False where a command has claimed the target for one to come.
        at_ms: When it was made, by the claimer's clock.
    """

    holder: str
    sink: str
    home: str
    engine: bool
    at_ms: int

    @classmethod
    def new(cls, sink: str, home: str, *, engine: bool) -> Claim:
        """Return a claim of now, different from all others."""
        return cls(uuid.uuid4().hex, sink, home, engine, int(time.time() * 1000))

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Claim:
        """Invert :meth:`as_dict`."""
        return cls(**data)
