"""Asks a sink's query to do something between two batches, and waits for its answer."""

from __future__ import annotations

import fcntl
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.config.pipeline import write_private
from headrace.config.request import BEGUN, WAITED_FOR, Request
from headrace.control.context import Context
from headrace.control.runner import engine_state
from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.schema import TableId
from headrace.observe import pidfile
from headrace.observe.failpoints import hit

__all__ = ["ask", "leave"]

_PAUSE_S = 0.05
_HEED_EVERY_S = 0.5


def leave(context: Context, sink: str, request: Request) -> Path:
    """Leave a request; the query takes it up when it can, and not before the engine runs."""
    path = _place(context, sink)
    write_private(path, request.model_dump_json())
    return path


def _place(context: Context, sink: str) -> Path:
    return context.requests / sink / f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.json"


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
        timeout: How long to wait until it is begun, seconds; then it is waited for while the engine lives.
        heed: Called now and then until it is begun; the request is withdrawn when it raises.

    Raises:
        SinkError: When the engine does not run (``SINK_AT_REST``), does not come to it in time
            (``SINK_BUSY``; the request is withdrawn), or could not do it, with its own reason.
    """
    state = engine_state(context.progress)["state"]
    if state not in ("ready", "starting") or not (context.pipelines / f"{sink}.json").exists():
        raise SinkError(
            f"Sink {sink} cannot be asked: the engine is {state}.",
            code="SINK_AT_REST",
            hint=f"headrace sink resume {sink}",
        )
    with _waiting(context, sink, request) as path:
        return _answer(sink, path, timeout, heed)


@contextmanager
def _waiting(context: Context, sink: str, request: Request) -> Iterator[Path]:
    """Leave a request for as long as its answer is waited for; a lock tells that, also when we are killed."""
    path = _place(context, sink)
    waits, new = path.with_suffix(WAITED_FOR), path.with_suffix(".new")
    path.parent.mkdir(parents=True, exist_ok=True)
    with new.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            new.replace(waits)  # never there without its lock: it would be taken for one of who has died
            write_private(path, request.model_dump_json())
            hit("desk.left", "")
            yield path
        finally:
            for ours in (path, new, waits, path.with_suffix(BEGUN)):
                ours.unlink(missing_ok=True)


def _answer(sink: str, path: Path, timeout: float, heed: Callable[[], object]) -> dict[str, Any]:
    """Return what the query answers to a request; see :func:`ask`."""
    answer, heeded, began = path.with_suffix(".answer"), time.monotonic(), time.monotonic()
    # What it did would not be known if it was left while it is done.
    while (begun := _at_it(path)) or time.monotonic() - began < timeout:
        if not begun and time.monotonic() - heeded >= _HEED_EVERY_S:
            heeded = time.monotonic()
            try:
                heed()
            except Exception:
                if not _at_it(path):  # else it has been begun just now
                    raise
        if answer.exists() and not path.exists():
            hit("desk.answered", "")
            said: dict[str, Any] = json.loads(answer.read_text())
            answer.unlink()
            if error := said.get("error"):
                kind = SinkUnavailable if error.get("later") else SinkError
                table = TableId(*error["table"]) if error.get("table") else None
                raise kind(error["message"], code=error["code"], hint=error.get("hint", ""), table=table)
            return said
        time.sleep(_PAUSE_S)
    raise SinkError(
        f"Sink {sink} did not come to it within {timeout:.0f} s.",
        code="SINK_BUSY",
        hint="Its store may not answer; see `headrace lag`.",
    )


def _at_it(path: Path) -> bool:
    """Return whether a driver that lives carries out a request, or has done so."""
    if pidfile.alive(path.with_suffix(BEGUN)) is not None:
        return True
    # After that: who carries it out takes its mark away when the answer is there.
    return path.with_suffix(".answer").exists() and not path.exists()
