"""Claims of commands upon targets, for the queries they start; see ``spark_jobs.ownership`` for theirs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.config.holders import holders, remember
from headrace.config.pipeline import write_private
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.model.claim import Claim
from headrace.model.errors import SinkError, UsageError
from headrace.model.schema import TableId, TableSchema

if TYPE_CHECKING:
    from sinks.base import Sink

__all__ = ["claim_targets", "installation", "owner_file", "refuse_own", "strangers"]


def installation(context: Context) -> str:
    """Return what this installation is called in claims: made up when first asked for, then kept."""
    path = context.owners / "installation"
    if not path.exists():
        write_private(path, uuid.uuid4().hex[:12])
    return path.read_text(encoding="utf-8")


def owner_file(context: Context, sink: str) -> Path:
    """Return the file in which a sink's queries note whom they claimed the targets as."""
    return context.owners / f"{sink}.json"


def claim_targets(
    context: Context, name: str, sink: Sink, schemas: Sequence[TableSchema], *, take_over: bool
) -> None:
    """Claim targets for the sink's next query; whoever holds them stops as soon as it looks.

    Raises:
        SinkError: When another installation holds one and ``take_over`` is not asked for, or somebody
            claims one at the same moment (``SINK_TARGET_TAKEN``).
    """
    home = installation(context)
    standing = sink.claims(schemas)
    others = [claim for claim in standing.values() if claim.home != home]
    if others and not take_over:
        raise _taken(name, others[0])
    claim = Claim.new(name, home, engine=False)
    path = owner_file(context, name)
    remember(path, [claim.holder, *(holders(path) or [])])
    if sink.claim(schemas, claim, standing):
        raise _taken(name, next(iter(sink.claims(schemas).values()), claim))


def refuse_own(context: Context, name: str, sink: Sink, schemas: Sequence[TableSchema]) -> None:
    """Refuse targets that another sink of this registry writes to, however their address is spelled.

    Raises:
        UsageError: ``SINK_TARGET_TAKEN``.
    """
    known = {entry.name for entry in Registry(context.registry).sinks()} - {name}
    home = installation(context)
    for table, claim in sink.claims(schemas).items():
        if claim.home == home and claim.sink in known:
            raise UsageError(
                f"Sink {claim.sink} writes to the same target of {table} already.",
                code="SINK_TARGET_TAKEN",
                hint="Give the new sink another prefix or path.",
            )


def strangers(
    context: Context, name: str, sink: Sink, schemas: Sequence[TableSchema]
) -> dict[TableId, Claim]:
    """Return the claims upon targets that are neither this sink's own nor of before it noted them."""
    path, home = owner_file(context, name), installation(context)
    known = holders(path)
    standing = sink.claims(schemas)
    if known is None:
        return {table: claim for table, claim in standing.items() if claim.home != home}
    return {table: claim for table, claim in standing.items() if claim.holder not in known}


def _taken(name: str, claim: Claim) -> SinkError:
    return SinkError(
        f"Sink {claim.sink} of another installation, {claim.home}, writes to a target of sink {name}.",
        code="SINK_TARGET_TAKEN",
        hint="Choose another prefix or path; or, when the other is gone for good, add --take-over.",
    )
