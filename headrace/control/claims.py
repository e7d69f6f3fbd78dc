"""Claims of commands upon targets, for the queries they start; see ``spark_jobs.ownership`` for theirs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path

from headrace.config.pipeline import write_private
from headrace.control.context import Context
from headrace.model.claim import Claim
from headrace.model.errors import SinkError
from headrace.model.schema import TableSchema
from sinks.base import Sink

__all__ = ["claim_targets", "installation", "owner_file"]


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
    known = json.loads(path.read_bytes()) if path.exists() else []
    write_private(path, json.dumps([claim.holder, *known]))
    if sink.claim(schemas, claim, standing):
        raise _taken(name, next(iter(sink.claims(schemas).values()), claim))


def _taken(name: str, claim: Claim) -> SinkError:
    return SinkError(
        f"Sink {claim.sink} of another installation, {claim.home}, writes to a target of sink {name}.",
        code="SINK_TARGET_TAKEN",
        hint="Choose another prefix or path; or, when the other is gone for good, add --take-over.",
    )
