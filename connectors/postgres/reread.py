"""Tables that the connector can follow but not read anew beside the stream."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.model.errors import SourceError
from headrace.model.pasted import command
from headrace.model.schema import TableSchema

__all__ = ["refuse_unreadable", "why_unreadable"]

_UNPARSED = re.compile(r"[\s.'\"`\[\]]")


def why_unreadable(schema: TableSchema) -> str:
    """Return why a table cannot be read anew; empty when it can.

    While it reads, the connector keeps the table's name without quotes and parses it again; it compares
    amounts of money with numbers, which Postgres refuses, and then reads no further table either; and a key
    that it cannot note down ends it at each start.
    """
    table = schema.table
    if _UNPARSED.search(table.schema) or _UNPARSED.search(table.name):
        return "its name holds a blank, a dot, a quote or a bracket"
    if any(column.dimensions for column in schema.key_columns):
        return "its key holds an array"
    if any(column.base == "money" for column in schema.key_columns):
        return "its key holds money"
    return ""


def refuse_unreadable(tables: Iterable[TableSchema]) -> None:
    """Raise when one of the tables cannot be read anew.

    Raises:
        SourceError: With code ``RESNAPSHOT_UNREADABLE``.
    """
    reasons = {schema.table: why_unreadable(schema) for schema in tables}
    told = [f"{table}: {why}" for table, why in reasons.items() if why]
    if told:
        others = command(*(str(table) for table, why in reasons.items() if not why))
        rest = f"`headrace resnapshot SOURCE {others}` reads the others; or " if others else ""
        raise SourceError(
            f"The connector cannot read these tables anew: {'; '.join(told)}.",
            code="RESNAPSHOT_UNREADABLE",
            hint=f"{rest}`headrace recover SOURCE` reads every table of the source.",
        )
