"""Rows that an earlier life of a source left behind: removed once every row of this life is there again.

A store that is restored from a backup of such a life holds rows that nothing of this life ever tells of.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.config.pipeline import PipelineSpec
from headrace.model.errors import SinkError
from headrace.model.position import Position
from sinks.base import Sink

__all__ = ["remove_earlier"]


def remove_earlier(sink: Sink, spec: PipelineSpec, refilled: Collection[str]) -> set[str]:
    """Remove rows of earlier epochs from tables of which everything was gone and has been applied again.

    Returns:
        The topics for which that is done; a target that refuses is tried again later.
    """
    done: set[str] = set()
    for table in spec.tables:
        if table.topic in refilled:
            try:
                sink.truncate(table.schema_, Position(table.epoch, 0))
            except SinkError as error:
                if error.table is None:
                    raise
            else:
                done.add(table.topic)
    return done
