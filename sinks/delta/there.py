"""What already lies where a table of the lake is to be, and cannot become what the table mirrors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from headrace.model.errors import SinkError
from headrace.model.finding import Finding
from headrace.model.schema import TableId
from sinks.delta.evolve import refuse_retyped
from sinks.delta.features import refuse_unknown
from sinks.delta.trouble import READING, named

__all__ = ["refuse_other", "there_findings"]


def refuse_other(delta: DeltaTable, path: Path, name: str) -> None:
    """Refuse a directory that holds the table of something else (``DELTA_PATH_TAKEN``)."""
    about = delta.metadata()
    if about.name != name:
        raise SinkError(
            f"{path} holds a Delta table called {about.name or 'nothing'}, not {name}.",
            code="DELTA_PATH_TAKEN",
            hint="Give the sink a directory of its own.",
        )


def there_findings(table: TableId, path: Path, wanted: pa.Schema) -> list[Finding]:
    """Return what stands in the way of a table of the lake; changes nothing.

    Args:
        table: What it is to mirror.
        path: Its directory, which need not exist.
        wanted: The columns that it is to have.
    """
    try:
        if path.is_dir() and DeltaTable.is_deltatable(str(path)):
            delta = DeltaTable(str(path))
            refuse_other(delta, path, str(table))
            refuse_unknown(delta, str(table))
            refuse_retyped(delta, path, wanted)
    except SinkError as error:
        return [_said(error, table)]
    except READING as error:
        return [_said(named(error, path, str(table)), table)]
    return []


def _said(error: SinkError, table: TableId) -> Finding:
    return Finding.refused(error, table)
