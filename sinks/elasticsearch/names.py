"""Names in Elasticsearch: which index a table has and which field a column has, both reversibly."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from headrace.model.schema import TableId
from sinks.document import percent

__all__ = [
    "META_FIELD",
    "VERSION_FIELD",
    "alias_of",
    "claims_alias",
    "field_of",
    "progress_alias",
    "replaced_of",
    "shadow_of",
    "tombstones_of",
    "version_in",
]

META_FIELD = "_headrace"
"""The one field that is no column: version and origin of the row."""
VERSION_FIELD = f"{META_FIELD}.version"
"""The version of our last write; a document without it was written by somebody else."""

_MAX_ALIAS_BYTES = 230
_INDEX_UNSAFE = re.compile(r"[^a-z0-9_.]|^[_.]")
_FIELD_UNSAFE = re.compile(r"[%.*\x00-\x1f\x7f]|^_|^\s+|\s+$")


def _index_part(name: str) -> str:
    return percent(name, _INDEX_UNSAFE).lower()


def alias_of(prefix: str, table: TableId) -> str:
    """Return the alias readers use: ``<prefix><schema>-<table>``, lower-case.

    What an index name may not hold is percent-encoded, and so is ``-``: exactly one is left, so no
    two tables share an alias and none meets the names below. Too long a name ends in a hash.
    """
    schema, name = _index_part(table.schema), _index_part(table.name)
    if len(prefix) + len(schema) + len(name) > _MAX_ALIAS_BYTES:
        whole = hashlib.sha256(f"{schema}-{name}".encode()).hexdigest()
        schema, name = schema[:40], f"{name[:40]}%{whole[:40]}"
    return f"{prefix}{schema}-{name}"


def shadow_of(alias: str, shadow: str) -> str:
    """Return the alias of a table's shadow; of the serving table when ``shadow`` is empty."""
    return f"{alias}-shadow-{shadow}" if shadow else alias


def replaced_of(alias: str) -> str:
    """Return the alias of what a shadow has taken the place of, until nobody reads it any more."""
    return f"{alias}-replaced"


def tombstones_of(alias: str) -> str:
    """Return the alias of what is remembered about a table's deleted rows."""
    return f"{alias}-deleted"


def progress_alias(prefix: str) -> str:
    """Return the alias of the index that holds how far everything is settled."""
    return f"{prefix}headrace_progress"


def claims_alias(prefix: str) -> str:
    """Return the alias of the index that says who may write."""
    return f"{prefix}headrace_claims"


def field_of(column: str) -> str:
    """Return the field of a column: dots, ``%``, ``*``, a leading ``_`` and outer blanks are percent-encoded.

    Dots would make objects, and names with a leading underscore belong to Elasticsearch.
    """
    return percent(column, _FIELD_UNSAFE)


def version_in(source: Mapping[str, Any]) -> int:
    """Return the version of our last write of a document; 0 when somebody else has put it there."""
    own = source.get(META_FIELD)
    version = own.get("version") if isinstance(own, Mapping) else None
    told = str(version)  # somebody else may spell it as a text
    return int(told) if told.isascii() and told.isdigit() else 0
