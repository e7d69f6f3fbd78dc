"""Which tables this sink may write to: those whose features it knows, by name.

A feature of a table is a duty of its writers (assign row ids, evaluate a constraint, find columns by another
name …). A writer that does not know the duty does harm without a word, so everything outside the list below
is refused, for reading too: a column that was renamed by column mapping is not where its name says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.table import ProtocolVersions

from headrace.model.errors import SinkError
from headrace.model.pasted import word

__all__ = ["refuse_unknown"]

_READER, _WRITER = 3, 7
"""The newest versions of the protocol; in these, features are listed by name."""

_KNOWN = {
    "appendOnly",
    "deletionVectors",
    "invariants",
    "timestampNtz",
    "vacuumProtocolCheck",
    "variantType",
    "variantType-preview",
}
"""Features that ask nothing more of a writer of whole files and vectors while nothing puts them to use."""

_BY_PROPERTY = {
    "appendOnly": "delta.appendOnly",
    "changeDataFeed": "delta.enableChangeDataFeed",
    "columnMapping": "delta.columnMapping.mode",
    "inCommitTimestamp": "delta.enableInCommitTimestamps",
    "rowTracking": "delta.enableRowTracking",
    "v2Checkpoint": "delta.checkpointPolicy",
    "icebergCompatV1": "delta.enableIcebergCompatV1",
    "icebergCompatV2": "delta.enableIcebergCompatV2",
    "typeWidening": "delta.enableTypeWidening",
}
"""Features that a property puts to use."""
_OFF = {"", "false", "none", "classic"}

_BY_COLUMN = {
    "generatedColumns": "delta.generationExpression",
    "identityColumns": "delta.identity.start",
    "invariants": "delta.invariants",
    "allowColumnDefaults": "CURRENT_DEFAULT",
    "columnMapping": "delta.columnMapping.physicalName",
}
"""Features that are put to use by what is noted with a column."""

_DORMANT = {"changeDataFeed", "checkConstraints", "columnMapping", "generatedColumns", "identityColumns"}
"""What older versions of the protocol allow as a whole: no duty until a property or a column uses it."""


def refuse_unknown(delta: DeltaTable, name: str) -> None:
    """Raise when a table asks more of a writer or reader than this sink does.

    Raises:
        SinkError: ``DELTA_TABLE_FEATURE``: names the features.
    """
    about = delta.metadata()
    schema = pa.schema(delta.schema().to_arrow())
    found = sorted(
        {
            *_listed(delta.protocol()),
            *_in_use(about.configuration, schema),
            *_laid_out(about.partition_columns),
        }
    )
    if found:
        raise unknown_features(name, ", ".join(found))


def unknown_features(name: str, which: str) -> SinkError:
    """Return the error of a table that has features outside the list."""
    return SinkError(
        f"The lake's table {name} was given what this sink does not write: {which}.",
        code="DELTA_TABLE_FEATURE",
        hint=f"Turn it off again, or build the table anew: headrace resnapshot SOURCE {word(name)}",
    )


def _listed(protocol: ProtocolVersions) -> Iterator[str]:
    if protocol.min_reader_version > _READER or protocol.min_writer_version > _WRITER:
        yield f"protocol {protocol.min_reader_version}/{protocol.min_writer_version}"
    for feature in [*(protocol.reader_features or ()), *(protocol.writer_features or ())]:
        if feature not in _KNOWN | _DORMANT:
            yield feature


def _in_use(properties: Mapping[str, Any], schema: pa.Schema) -> Iterator[str]:
    for feature, key in _BY_PROPERTY.items():
        if str(properties.get(key) or "").lower() not in _OFF:
            yield feature
    if any(key.startswith("delta.constraints.") for key in properties):
        yield "checkConstraints"
    for field in schema:
        noted = {key.decode() for key in field.metadata or {}}
        yield from (feature for feature, key in _BY_COLUMN.items() if key in noted)
        if not field.nullable:
            yield f"NOT NULL ({field.name})"


def _laid_out(partitioned: list[str]) -> Iterator[str]:
    if partitioned:
        yield f"partitions by {', '.join(partitioned)}"
