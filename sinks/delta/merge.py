"""Partial changes: the columns a change leaves out come from the row it replaces."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.change import Change
from sinks.delta.shape import UNHELD, Shape

__all__ = ["Kept", "fill"]


@dataclass(slots=True)
class Kept:
    """Stored rows that partial changes build on.

    Args:
        partial: Number of the change in the batch → number of its row among those being written.
    """

    partial: Mapping[int, int]
    _rows: list[pa.Table] = field(default_factory=list)
    _targets: list[int] = field(default_factory=list)

    def note(self, part: pa.Table, rows: np.ndarray, sought: np.ndarray) -> None:
        """Keep those of ``rows`` that a partial change replaces; ``sought`` says whose row each is."""
        if not self.partial:
            return
        wanted = [n for n, change in enumerate(sought.tolist()) if change in self.partial]
        if wanted:
            self._rows.append(part.take(pa.array(rows[wanted])))
            self._targets += [self.partial[int(sought[n])] for n in wanted]

    def spread(self, count: int) -> pa.Table:
        """Return a table of ``count`` rows: where a row is kept for it that row, else NULLs."""
        source: np.ndarray = np.full(count, -1, np.int64)
        source[self._targets] = np.arange(len(self._targets))
        return pa.concat_tables(self._rows).take(pa.array(source, mask=source < 0))


def fill(fresh: pa.Table, shape: Shape, upserts: Sequence[Change], kept: Kept) -> pa.Table:
    """Return ``fresh`` with the absent columns of its rows taken from the rows kept."""
    stored = kept.spread(len(fresh))
    absent = set().union(*(change.absent for change in upserts))
    for field_ in shape.fields:
        name = field_.column.name
        if name in absent:
            mask = pa.array([name in change.absent for change in upserts])
            position = fresh.schema.get_field_index(field_.name)
            column = pc.if_else(
                mask, stored[field_.name].combine_chunks(), fresh[field_.name].combine_chunks()
            )
            fresh = fresh.set_column(position, fresh.schema.field(position), column)
    if shape.keeps_unheld:
        position = fresh.schema.get_field_index(UNHELD)
        told = zip(upserts, fresh[UNHELD].to_pylist(), stored[UNHELD].to_pylist(), strict=True)
        both = [_both(change, new, old) for change, new, old in told]
        fresh = fresh.set_column(position, fresh.schema.field(position), pa.array(both, pa.string()))
    return fresh


def _both(change: Change, new: str | None, old: str | None) -> str | None:
    """Return what is kept beside a row: of columns that a change leaves out, what was kept before."""
    if old is None or not change.absent:
        return new
    left = {name: value for name, value in json.loads(old).items() if name in change.absent}
    kept = left | (json.loads(new) if new is not None else {})
    return json.dumps(kept) if kept else None
