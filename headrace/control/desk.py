"""Asks a sink's query to do something between two batches, and waits for its answer."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.config.pipeline import write_private
from headrace.config.request import Request
from headrace.control.context import Context
from headrace.control.runner import engine_state
from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.schema import TableId

__all__ = ["ask", "leave"]

_PAUSE_S = 0.05
_HEED_EVERY_S = 0.5


def leave(context: Context, sink: str, request: Request) -> Path:
    """Leave a request; the query takes it up when it can, and not before the engine runs."""
    path = context.requests / sink / f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.json"
    write_private(path, request.model_dump_json())
    return path


def ask(
    context: Context,
    sink: str,
    request: Request,
    *,
    timeout: float = 120.0,
    heed: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Leave a request and return the answer.

    Args:
        context: The installation.
        sink: Whose query is asked.
        request: What for.
        timeout: How long to wait, seconds.
        heed: Called now and then; the request is withdrawn when it raises.

    Raises:
        SinkError: When the engine does not run (``SINK_AT_REST``), does not answer in time
            (``SINK_BUSY``; the request is withdrawn), or could not do it, with its own reason.
    """
    state = engine_state(context.progress)["state"]
    if state not in ("ready", "starting") or not (context.pipelines / f"{sink}.json").exists():
        raise SinkError(
            f"Sink {sink} cannot be asked: the engine is {state}.",
            code="SINK_AT_REST",
            hint=f"headrace sink resume {sink}",
        )
    path = leave(context, sink, request)
    answer = path.with_suffix(".answer")
    deadline, heeded = time.monotonic() + timeout, time.monotonic()
    while time.monotonic() < deadline:
        if time.monotonic() - heeded >= _HEED_EVERY_S:
            heeded = time.monotonic()
            try:
                heed()
            except BaseException:
                path.unlink(missing_ok=True)
                raise
        if answer.exists() and not path.exists():
            said: dict[str, Any] = json.loads(answer.read_text())
            answer.unlink()
            if error := said.get("error"):
                kind = SinkUnavailable if error.get("later") else SinkError
                table = TableId(*error["table"]) if error.get("table") else None
                raise kind(error["message"], code=error["code"], hint=error.get("hint", ""), table=table)
            return said
        time.sleep(_PAUSE_S)
    path.unlink(missing_ok=True)
    raise SinkError(
        f"Sink {sink} did not come to it within {timeout:.0f} s.",
        code="SINK_BUSY",
        hint="Its store may not answer; see `headrace lag`.",
    )
