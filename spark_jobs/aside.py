"""One thing done beside the rest: a store works on the last rows while the next are made of records."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

__all__ = ["Aside"]


class Aside:
    """Does one thing at a time in a thread of its own, in the order it is asked to.

    Leaving the context waits for what is under way; its error is raised unless there is one already.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None

    def __enter__(self) -> Aside:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()

    def do(self, work: Callable[[], None]) -> None:
        """Wait until what is under way is done, then begin ``work``.

        Raises:
            BaseException: What the work before this ended with.
        """
        self.wait()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "aside")
        self._under_way = self._thread.submit(work)

    def wait(self) -> None:
        """Wait until what is under way is done.

        Raises:
            BaseException: What it ended with.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()
