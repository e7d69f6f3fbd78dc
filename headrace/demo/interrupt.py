"""A request to end, by Ctrl-C or SIGTERM, that cannot get lost."""

from __future__ import annotations

import signal
import threading
from types import FrameType

__all__ = ["Interruption"]


class Interruption:
    """Raises ``KeyboardInterrupt`` in the main thread on SIGINT and SIGTERM, and remembers that it did.

    Python drops what a signal handler raises while a finalizer or a callback of a C library runs, so who
    waits long asks :meth:`heed` from time to time.
    """

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def heed(self) -> None:
        """Do nothing unless asked to end.

        Raises:
            KeyboardInterrupt: In the main thread, each time after it was asked.
        """
        if self._asked and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        raise KeyboardInterrupt
