"""What a process makes of a pipeline's text: made once, and let go when newer texts have taken its place.

A text changes with each claim, each completed run and each change of columns; a pipeline goes when its sink
is removed, or when the table that it filled beside the target has taken the target's place. What was made of
the former ones would otherwise stay for as long as the process lives, and a lake's index of keys is large.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from headrace.config.pipeline import PipelineSpec

__all__ = ["PerPipeline"]

T = TypeVar("T")

_TIDY_S = 30.0


class PerPipeline(Generic[T]):
    """A function of a pipeline's text that is worked out once.

    Args:
        make: What to make of the pipeline.
        kept: How many texts of each pipeline are remembered. The default is two: who writes has a text with
            the holder of its claim, who asks for a claim has one without.
    """

    def __init__(self, make: Callable[[PipelineSpec], T], kept: int = 2) -> None:
        self._make = make
        self._kept = kept
        self._made: OrderedDict[str, tuple[str, T]] = OrderedDict()
        self._lock = threading.RLock()
        self._tidied = time.monotonic()

    def __call__(self, pipeline: str) -> T:
        """Return what is made of this text, a :class:`PipelineSpec` as JSON."""
        with self._lock:
            self.tidy()
            if pipeline not in self._made:
                spec = PipelineSpec.model_validate_json(pipeline)
                name = str(spec.checkpoint)  # no two pipelines of a machine share one
                self._made[pipeline] = name, self._make(spec)
                mine = [text for text, (whose, _) in self._made.items() if whose == name]
                for old in mine[: -self._kept]:
                    del self._made[old]
            self._made.move_to_end(pipeline)
            return self._made[pipeline][1]

    def tidy(self) -> None:
        """Let go, now and then, of pipelines that are gone; one that has not begun yet is made anew."""
        with self._lock:
            if time.monotonic() - self._tidied < _TIDY_S:
                return
            self._tidied = time.monotonic()
            gone = {name for name in {whose for whose, _ in self._made.values()} if not Path(name).exists()}
            for text in [text for text, (whose, _) in self._made.items() if whose in gone]:
                del self._made[text]

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._made.clear()
