"""What a process makes of a pipeline's text: made once, and let go when newer texts have taken its place.

A text changes with each claim, each completed run and each change of columns. What was made of the former
ones would otherwise stay for as long as the process lives, and a lake's index of keys is large.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from headrace.config.pipeline import PipelineSpec

__all__ = ["PerPipeline"]

T = TypeVar("T")


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

    def __call__(self, pipeline: str) -> T:
        """Return what is made of this text, a :class:`PipelineSpec` as JSON."""
        with self._lock:
            if pipeline not in self._made:
                spec = PipelineSpec.model_validate_json(pipeline)
                name = str(spec.checkpoint)  # no two pipelines of a machine share one
                self._made[pipeline] = name, self._make(spec)
                mine = [text for text, (whose, _) in self._made.items() if whose == name]
                for old in mine[: -self._kept]:
                    del self._made[old]
            self._made.move_to_end(pipeline)
            return self._made[pipeline][1]

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._made.clear()
