"""What people may ask of a sink's query; the control plane writes it and the engine reads it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["BEGUN", "WAITED_FOR", "Request"]

WAITED_FOR = ".waits"
"""Ending of the file that whoever waits for an answer keeps locked: nothing is done for who has died."""
BEGUN = ".begun"
"""Ending of the pid file of the driver that carries a request out, for whoever waits for the answer."""


class Request(BaseModel):
    """What may be asked of a sink.

    Args:
        replay: File of letters → those to apply again, as ``[topic, epoch, partition, offset]``.
        sweep: Table → versions: everything below each, of its partition, is to be removed.
        sweep_limit: Rows and share of a table's rows: a sweep that would remove more than both of them of a
            table removes none of that table. Without it every sweep is done.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    replay: dict[str, list[tuple[str, int, int, int]]] = {}
    sweep: dict[str, list[int]] = {}
    sweep_limit: tuple[int, float] | None = None
