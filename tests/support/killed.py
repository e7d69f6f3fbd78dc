"""Commands that end in the middle as by a kill, within the process: nothing is taken back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType

__all__ = ["Dropping", "Killed", "killing"]


class Killed(BaseException):
    """Ends a command as a kill does."""


class Dropping(ExitStack):
    """Takes nothing back of a command that was killed."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is Killed:
            self.pop_all()
        return super().__exit__(kind, error, trace)


def killing(call: Callable[..., object]) -> Callable[..., object]:
    """Return a step after which the command is killed."""

    def dies(*arguments: object, **named: object) -> object:
        call(*arguments, **named)
        raise Killed

    return dies
