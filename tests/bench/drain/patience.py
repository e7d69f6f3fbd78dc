"""Asking a store again that says that it is busy; never while something is timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from elasticsearch import ApiError

__all__ = ["patiently"]

_TRIES = 60
_PAUSE_S = 0.5
_BUSY = 429

Got = TypeVar("Got")


def patiently(call: Callable[[], Got]) -> Got:
    """Return what ``call`` returns, calling again while Elasticsearch is short of memory."""
    for _ in range(_TRIES):
        try:
            return call()
        except ApiError as error:
            if error.meta.status != _BUSY:
                raise
        time.sleep(_PAUSE_S)
    return call()
