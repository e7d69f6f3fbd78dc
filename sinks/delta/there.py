"""What already lies where a table of the lake is to be, and cannot become what the table mirrors."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from headrace.model.errors import SinkError
from headrace.model.finding import Finding
from headrace.model.schema import TableId
from sinks.delta.evolve import refuse_retyped
from sinks.delta.features import refuse_unknown
from sinks.delta.shape import Shape
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


def there_findings(table: TableId, path: Path, wanted: Shape) -> list[Finding]:
    """Return what stands in the way of a table of the lake, or of its other writers; changes nothing.

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
            refuse_retyped(delta, path, wanted.arrow)
    except SinkError as error:
        return [Finding.refused(error, table)]
    except READING as error:
        return [Finding.refused(named(error, path, str(table)), table)]
    if not wanted.unalterable:
        return []
    names = ", ".join(f"“{name}”" for name in wanted.unalterable)
    message = f"{table}: Spark reads the columns {names}, and alters no Delta table that has such names."
    hint = "Rename them in Postgres if Spark is to alter the table, or to copy it."
    return [Finding.warning("DELTA_COLUMN_NAME", message, hint, table)]
