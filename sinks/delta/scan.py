"""Every live row of a lake's table, read as any reader would; nothing is written."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headrace.model.errors import SinkUnavailable
from sinks.base import Stored
from sinks.delta.decode import decode
from sinks.delta.files import conform, live_parts
from sinks.delta.shape import Shape
from sinks.delta.table import LakeTable
from sinks.delta.trouble import file_missing, named

__all__ = ["live_rows"]


def live_rows(lake: LakeTable, shape: Shape) -> Iterator[Stored]:
    """Yield the rows that the table has now.

    Raises:
        SinkUnavailable: ``DELTA_SCAN_OVERTAKEN``: a file was replaced meanwhile; scan again.
        SinkError: ``DELTA_FILE_UNREADABLE``: a file is gone that the table still needs, or cannot be read.
    """
    lake.refresh()
    for file in list(lake.files.values()):
        try:
            for part in live_parts(lake.path, file, lake.schema):
                yield from decode(shape, conform(part, shape.arrow))
        except FileNotFoundError as error:
            lake.refresh()
            if file.path in lake.files:
                raise file_missing(lake.path, lake.name) from error
            raise SinkUnavailable(
                f"The files of {lake.name} were replaced while they were read.",
                code="DELTA_SCAN_OVERTAKEN",
                hint="Scan again.",
            ) from error
        except pa.ArrowException as error:
            raise named(error, lake.path, lake.name) from error
