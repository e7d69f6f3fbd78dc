"""Tables that the connector can follow but not read anew beside the stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from connectors.postgres.catalogue import oids
from connectors.postgres.orders import compared_otherwise
from connectors.postgres.session import Session
from headrace.model.errors import SourceError
from headrace.model.finding import Finding
from headrace.model.pasted import command
from headrace.model.schema import Column, TableId, TableSchema

__all__ = ["refuse_unreadable", "unreadable_now", "why_unreadable"]

_UNPARSED = re.compile(r"[\s.'\"`\[\]]")


def why_unreadable(schema: TableSchema) -> str:
    """Return why a table cannot be read anew; empty when it can.

    While it reads, the connector keeps the table's name without quotes and parses it again; it compares
    amounts of money with numbers, which Postgres refuses, and then reads no further table either; and a key
    that it cannot note down ends it at each start. It sorts keys by the order of their type, and compares
    them by what its sessions find under the name ``>``: none is an error, and that of another type passes
    over rows.
    """
    table = schema.table
    if _UNPARSED.search(table.schema) or _UNPARSED.search(table.name):
        return "its name holds a blank, a dot, a quote or a bracket"
    if any(column.dimensions for column in schema.key_columns):
        return "its key holds an array"
    if any(column.base == "money" for column in schema.key_columns):
        return "its key holds money"
    for column in schema.key_columns:
        if column.compared_otherwise:
            return _otherwise(column)
    return ""


def _otherwise(column: Column) -> str:
    return f"its key holds {column.native}, and the connector finds no > in the order of that type"


def unreadable_now(connection: Session, tables: Sequence[TableSchema]) -> dict[TableId, Finding]:
    """Return the tables that :func:`why_unreadable` takes for readable, and whose keys are not just now.

    An extension may be moved to another schema when its tables have been registered.
    """
    readable = {schema.table: schema for schema in tables if not why_unreadable(schema)}
    named = {oid: readable[table] for table, oid in oids(connection, list(readable)).items()}
    keys = {(oid, name) for oid, schema in named.items() for name in schema.key}
    found: dict[TableId, Finding] = {}
    for oid, name in sorted(compared_otherwise(connection, keys)):
        schema = named[oid]
        why = _otherwise(schema.by_name[name])
        said = f"The connector cannot read {schema.table} anew: {why}."
        finding = Finding.error("RESNAPSHOT_UNREADABLE", said, "headrace recover SOURCE", schema.table)
        found.setdefault(schema.table, finding)
    return found


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
