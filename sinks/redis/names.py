"""Keys in Redis: one per row, built from the table and the row's key so that no two ever meet."""

from __future__ import annotations

import re

from headrace.model.schema import TableId, TableSchema
from sinks.document import percent

__all__ = [
    "META_FIELD",
    "SOURCE_FIELD",
    "Keys",
    "claims_key",
    "counts_key",
    "field_of",
    "glob",
    "heads",
    "lasting_keys",
    "moments_key",
    "notes_key",
    "progress_key",
    "targets_key",
    "witnesses_key",
]

META_FIELD = "_headrace"
"""Holds the row's version, as 19 digits."""

SOURCE_FIELD = "_headrace_source"
"""Holds where the row's state came from, as JSON."""

_OWN = "__headrace"
_LABEL_UNSAFE = re.compile(r"[%:.{}\x00-\x1f\x7f]")
_FIELD_UNSAFE = re.compile(r"%|^_(?=headrace)")
_COLUMN_UNSAFE = re.compile(r"[%{}:]")
_GLOB = re.compile(r"([\\*?\[\]^-])")


def _label(table: TableId) -> str:
    name = percent(table.name, _LABEL_UNSAFE)
    if table.schema != "public":
        return f"{percent(table.schema, _LABEL_UNSAFE)}.{name}"
    return "%5F" + name[1:] if name == _OWN else name


def field_of(column: str) -> str:
    """Return the field of a column: its name; ``%`` and a leading ``_headrace`` are percent-encoded."""
    return percent(column, _FIELD_UNSAFE)


def glob(text: str) -> str:
    """Return the pattern that matches ``text`` only."""
    return _GLOB.sub(r"\\\1", text)


def _own(prefix: str, shadow: str) -> str:
    """Return what the keys begin with that are not for readers; a shadow has its own."""
    return f"{prefix}{_OWN}:shadow:{shadow}" if shadow else f"{prefix}{_OWN}"


def heads(prefix: str, template: str) -> tuple[str, str]:
    """Return what the keys of all tables' rows begin with, and what those do that are not for readers."""
    return template.partition("{table}")[0].replace("{prefix}", prefix), _own(prefix, "")


def progress_key(prefix: str, shadow: str = "") -> str:
    """Return the key of the hash that holds how far everything is settled."""
    return f"{_own(prefix, shadow)}:progress"


def claims_key(prefix: str) -> str:
    """Return the key of the hash that says who may write to which table."""
    return f"{prefix}{_OWN}:claims"


def counts_key(prefix: str) -> str:
    """Return the key of the hash that counts the rows of each table that were made and removed."""
    return f"{prefix}{_OWN}:counts"


def moments_key(prefix: str) -> str:
    """Return the key of the hash of marks that writers leave whenever they look at the progress."""
    return f"{prefix}{_OWN}:moments"


def notes_key(prefix: str) -> str:
    """Return the key of the hash of rows that come and go while keys are walked over."""
    return f"{counts_key(prefix)}:walk"


def targets_key(prefix: str) -> str:
    """Return the key of the hash that holds a token for each table that was prepared."""
    return f"{prefix}{_OWN}:targets"


def witnesses_key(prefix: str) -> str:
    """Return the key of the hash that names one row of each table."""
    return f"{prefix}{_OWN}:witnesses"


def lasting_keys(prefix: str) -> list[str]:
    """Return the keys of a sink that lie beside those of its tables and last."""
    named = (progress_key, claims_key, counts_key, moments_key, targets_key, witnesses_key)
    return [name(prefix) for name in named]


class Keys:
    """The keys of one table.

    Args:
        prefix: The sink's prefix.
        template: Shape of a key, with ``{prefix}``, ``{table}`` and, last, ``{pk}``.
        schema: The table.
        shadow: The shadow's name; its rows are not where the template says.

    Attributes:
        head: What every row's key begins with; its id follows.
        young: The hash of tombstones that deletes go into, id → version.
        elder: The hash of tombstones that was the younger before.
        prepared: Of a shadow: there from the first on until its rows have been renamed.
        leaving: Of a shadow: the list of serving rows that go when its rows are renamed in several steps.
    """

    def __init__(self, prefix: str, template: str, schema: TableSchema, shadow: str = "") -> None:
        label = _label(schema.table)
        own = _own(prefix, shadow)
        self.head = template.removesuffix("{pk}").replace("{table}", label).replace("{prefix}", prefix)
        if shadow:
            self.head = f"{own}:rows:{label}:"
        self.young = f"{own}:deleted:{label}:young"
        self.elder = f"{own}:deleted:{label}:elder"
        self.prepared = f"{own}:prepared:{label}"
        self.leaving = f"{own}:leaving:{label}"
        parts = ("{" + percent(name, _COLUMN_UNSAFE) + "}" for name in schema.key)
        self.template = self.head + ":".join(parts)
