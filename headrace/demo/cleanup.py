"""Leaves a home as the demo found it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.control.runner import stop_engine
from headrace.demo.boot import Boot, Booted
from headrace.local.stack import SERVERS, Stack
from headrace.model.errors import HeadraceError

__all__ = ["Cleanup"]


@contextmanager
def _undisturbed() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Cleanup:
    """Stops what the demo started and removes what it made; what was there before stays, and what came since.

    Args:
        stack: The stack.
        boot: Knows which servers the demo started.
        made_home: Whether the home is there because of the demo.
        say: Told what could not be removed, and how to do it by hand.
    """

    def __init__(self, stack: Stack, boot: Boot, say: Callable[[str], None], *, made_home: bool) -> None:
        self._stack = stack
        self._boot = boot
        self._say = say
        self._made_home = made_home
        self.booted: Booted | None = None

    def run(self) -> None:
        """Tidy up, undisturbed by another Ctrl-C.

        Never raises a :class:`HeadraceError`, so that it does not hide what went wrong before.
        """
        with _undisturbed():
            self._run()

    def _run(self) -> None:
        others = self._others()
        if self._made_home and not others:
            self._down(purge=True)
            return
        if self.booted is not None:
            try:
                self.booted.belongings.remove(self._say)
            except HeadraceError as error:
                self._say(f"not removed: {error.message} ({error.code}); the next demo tries again")
        if came := sorted(others - self._boot.before):
            self._say(f"the servers run on for {', '.join(came)}; `headrace down` stops them")
        elif self._boot.started == {server.name for server in SERVERS}:
            self._down(purge=False)
        elif self.booted is not None and not others:
            stop_engine(self._stack.home.run)

    def _others(self) -> set[str]:
        belongings = self._boot.belongings if self.booted is None else self.booted.belongings
        return belongings.others() if belongings is not None else set()

    def _down(self, *, purge: bool) -> None:
        try:
            killed = self._stack.down(purge=purge)
        except HeadraceError as error:
            self._say(f"not stopped: {error.message} ({error.code}); try `headrace down`")
            return
        self._say("servers stopped" + (f"; killed: {', '.join(killed)}" if killed else ""))
