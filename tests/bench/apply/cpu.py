"""Where this process' processor time goes, sampled as it is spent, by the kind of work."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Mapping
from types import FrameType, TracebackType

__all__ = ["Sampler"]

_EVERY_S = 0.001

OTHER = "other"


class Sampler:
    """Counts processor seconds per kind of work while it is entered; may be entered again and again.

    The timer of processor time rings at the scheduler's pace, so each ring is weighed by the time spent since
    the last one: what is spent outside Python counts for the function that called it.

    Args:
        kinds: ``(end of a file's path, function)``, or with ``*`` for any function of the file, → the work.
            The innermost frame that is named decides.
    """

    def __init__(self, kinds: Mapping[tuple[str, str], str]) -> None:
        self.seconds: Counter[str] = Counter()
        self._kinds = kinds
        self._known: dict[object, str | None] = {}
        self._last = 0.0

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGPROF, self._ring)
        signal.siginterrupt(signal.SIGPROF, False)
        self._last = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, _EVERY_S, _EVERY_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._before)

    def _ring(self, _: int, frame: FrameType | None) -> None:
        now = time.process_time()
        self.seconds[self._kind(frame)] += now - self._last  # type: ignore[assignment]
        self._last = now

    def _kind(self, frame: FrameType | None) -> str:
        while frame is not None:
            code = frame.f_code
            if code not in self._known:
                self._known[code] = self._named(code.co_filename, code.co_name)
            kind = self._known[code]
            if kind is not None:
                return kind
            frame = frame.f_back
        return OTHER

    def _named(self, path: str, function: str) -> str | None:
        for (end, name), kind in self._kinds.items():
            if path.endswith(end) and name in ("*", function):
                return kind
        return None

    def shares(self) -> dict[str, float]:
        """Return each kind's share of what was sampled, the largest first."""
        total = sum(self.seconds.values()) or 1.0
        return {kind: round(seconds / total, 3) for kind, seconds in self.seconds.most_common()}
