"""A sink takes its targets back from another installation: what that has written stands before our rows."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.control.claims import claim_targets, installation
from headrace.control.context import Context
from headrace.control.registry import Registry, SinkEntry, SourceTableEntry, epoch_by_clock
from headrace.control.remedies import recover
from headrace.control.verdicts import TAKEN_BACK, State, Verdict, record
from headrace.model.errors import SinkError
from headrace.model.position import Position
from headrace.model.schema import TableSchema
from sinks.base import Sink

__all__ = ["take_back"]

_FURTHEST = 1 << 12
"""An epoch so far beyond this hour's is nobody's: a version that somebody has made up."""


def take_back(
    context: Context, registry: Registry, entry: SinkEntry, tables: Sequence[SourceTableEntry], sink: Sink
) -> None:
    """Claim a sink's targets, whoever holds them, and say which tables another installation has written to.

    Rows and deletes of another installation count as later than any change of ours, and it has removed ours.
    So these tables are ``resync_required`` until a recovery, whose epoch is above all that stands there.

    Raises:
        SinkError: When the store does not answer, or somebody claims a target at the same moment.
    """
    home, standing = installation(context), sink.claims([table.schema for table in tables])
    source = registry.source(entry.source)
    for table in tables:
        claim = standing.get(table.schema.table)
        if claim is None or claim.home == home:
            continue
        reason = (
            f"sink {claim.sink} of another installation, {claim.home}, has written to this table's target"
        )
        verdict = Verdict(
            State.RESYNC_REQUIRED, f"{reason}; its rows count as later than ours", recover(source.name)
        )
        # Before the claim: whoever is interrupted between the two has said what stands there.
        record(registry, source, [table.topic], TAKEN_BACK, verdict, sink=entry.name)
        # Not below this hour's, either: deletes, which nobody counts, have the other's epoch, too.
        least = max(table.epoch, epoch_by_clock())
        registry.epochs_begin_above(table.topic, _newest(sink, table.schema, least))
    claim_targets(context, entry.name, sink, [table.schema for table in tables], take_over=True)
    registry.note(f"sink {entry.name}", "taken over")


def _newest(sink: Sink, schema: TableSchema, epoch: int) -> int:
    """Return an epoch, ``epoch`` at least, that no row of a target is above.

    The store counts: no row need be readable. A version that is absurdly high is nobody's.

    A target that refuses has no say: it is made anew.
    """
    ahead = 0
    try:
        rows = sink.count(schema)
        while ahead < _FURTHEST and sink.count(schema, Position(epoch + ahead + 1, 0)) < rows:
            ahead = 2 * ahead + 1
    except SinkError as error:
        if error.table is None:
            raise
        return epoch
    return epoch + ahead if ahead < _FURTHEST else epoch
