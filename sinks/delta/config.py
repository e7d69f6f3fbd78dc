"""Settings of the lake sink and the names of what it keeps on disk."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ConfigDict, Field, field_validator

from headrace.model.schema import Column, TableId
from sinks.delta.shape import limited
from sinks.shadow import ShadowName
from sinks.unheld import UnheldSettings

__all__ = ["ASIDE", "LakeConfig", "data_path", "directory_name", "tombstones_path"]

ASIDE = "_headrace"
"""Directory under the lake's path for what readers need not see; no schema's directory has this name."""

_PLAIN = re.compile(rb"[A-Za-z0-9_.-]")


class LakeConfig(UnheldSettings):
    """Settings of a lake.

    Attributes:
        path: The lake's directory on a local or mounted file system; tables are ``path/schema/table``.
        tombstone_hours: How long a deleted row's version is remembered, so that older changes that
            arrive later do not bring the row back. At least the longest replay.
        keep_replaced_seconds: How long files replaced by newer ones stay, for readers who opened the older
            version and for time travel; written into new tables as ``delta.deletedFileRetentionDuration``,
            and what a table says there is what is done. The room they take is what was written in that time.
        deletion_vectors: Hide replaced rows by deletion vectors instead of rewriting their files. Applying
            then costs the same however large the table is, but only readers that know deletion vectors
            can read it (Spark, Trino, DuckDB; of Python's ``deltalake`` its queries, not ``to_pandas``).
        commit_seconds: How long changes that keep coming are gathered, at most, for one version of their
            tables. What comes after a pause, in tens or in thousands is committed at once.
        index_bytes: Memory for the keys of data files; keys that do not fit are read from the files.
        shadow: See :mod:`sinks.shadow`.
        unheld: See :mod:`sinks.unheld`; so ``unheld.<schema>.<table>.<column>``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path
    tombstone_hours: float = Field(24.0, gt=0)
    keep_replaced_seconds: int = Field(900, ge=0)
    deletion_vectors: bool = False
    commit_seconds: float = Field(1.0, ge=0, le=60)
    index_bytes: int = Field(128 << 20, ge=0)
    shadow: ShadowName = ""

    @property
    def root(self) -> Path:
        """Return the directory of the sink's tables; a shadow's is hidden from readers of the lake."""
        return self.path / ASIDE / "shadow" / self.shadow if self.shadow else self.path

    @classmethod
    def no_use(cls, column: Column) -> str:
        """Return why a policy changes nothing for a column: where the lake's type has every value."""
        if limited(column):
            return ""
        return (
            "A lake holds every value of such a column. Columns of date, timestamp, timestamptz and numeric"
            " with 38 digits at most take a policy, and arrays of them."
        )

    @field_validator("path", mode="before")
    @classmethod
    def _local(cls, value: object) -> object:
        text = str(value)
        if "://" in text:
            if not text.startswith("file:///"):
                raise ValueError("the lake's path has to be a local or mounted directory")
            text = text.removeprefix("file://")
        return Path(text).expanduser().absolute()


def directory_name(name: str) -> str:
    """Return a directory name for any catalogue name: injective, readable, safe on every file system.

    Bytes that are not letters, digits, ``_``, ``.`` or ``-`` become ``~XX``. A percent sign would not do:
    Delta readers take paths for URLs and decode it. A leading ``.`` or ``_`` is written so too, because
    readers take such directories for hidden.
    """
    parts = []
    for position, byte in enumerate(name.encode()):
        plain = _PLAIN.match(bytes([byte])) and not (position == 0 and byte in b"._")
        parts.append(chr(byte) if plain else f"~{byte:02X}")
    return "".join(parts)


def data_path(root: Path, table: TableId) -> Path:
    """Return the directory of a table's Delta table."""
    return root / directory_name(table.schema) / directory_name(table.name)


def tombstones_path(root: Path, table: TableId) -> Path:
    """Return the file that remembers a table's deleted rows."""
    return root / ASIDE / directory_name(table.schema) / f"{directory_name(table.name)}.tombstones"
