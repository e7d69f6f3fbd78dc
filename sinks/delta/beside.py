"""Work beside the caller's: what waits for the disk or runs in a library without Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["beside"]

_Result = TypeVar("_Result")


class _Threads:
    """A few threads for the whole process, started when there is work."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.pool = ThreadPoolExecutor(4, thread_name_prefix="lake")


_threads = _Threads()
os.register_at_fork(after_in_child=_threads.renew)


def beside(work: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
    """Begin with ``work``, which must not wait for other work given to this function."""
    return _threads.pool.submit(work, *arguments)
