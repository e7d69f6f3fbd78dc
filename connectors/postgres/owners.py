"""Who owns the captured tables and what is ours in a database: nobody else may publish, alter or drop it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from connectors.base import Capture
from connectors.postgres.rights import not_owned
from connectors.postgres.session import Session, quoted, rows
from headrace.model.errors import SourceError
from headrace.model.finding import Finding
from headrace.model.schema import TableId

__all__ = ["check_owners", "refuse_strange"]

_STRANGE = """
SELECT s.*, o.rolname::text AS owner, r.rolname::text AS role,
       CASE WHEN current_setting('server_version_num')::int < 160000 THEN r.rolinherit END AS inherits
FROM (
SELECT 'PUBLICATION' AS kind, quote_ident(p.pubname) AS called, NULL AS schema, NULL AS name, true AS ours,
       p.pubowner AS owned_by
FROM pg_publication p WHERE p.pubname = %s
UNION ALL
SELECT 'TABLE', format('%%I.%%I', w.schema, w.name), w.schema, w.name, w.ours, c.relowner
FROM unnest(%s::text[], %s::text[], %s::bool[]) AS w(schema, name, ours)
JOIN pg_namespace n ON n.nspname = w.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
) AS s JOIN pg_roles o ON o.oid = s.owned_by JOIN pg_roles r ON r.rolname = current_user
WHERE NOT pg_has_role(s.owned_by, 'USAGE')
"""


def check_owners(connection: Session, capture: Capture) -> Iterator[Finding]:
    """Yield what belongs to roles whose rights ours does not have; nothing of what is not there."""
    own = {capture.signals: True, capture.heartbeat: True}
    tables = own | {schema.table: False for schema in capture.tables}
    schemas, names = [table.schema for table in tables], [table.name for table in tables]
    for row in rows(connection, _STRANGE, capture.connector, schemas, names, list(tables.values())):
        if row["ours"]:
            yield Finding.error(
                "SOURCE_OBJECT_OWNER",
                f"Our {row['kind'].lower()} {row['called']} belongs to {row['owner']};"
                " only its owner may alter or drop it.",
                f"ALTER {row['kind']} {row['called']} OWNER TO {quoted(row['role'])};",
            )
        else:
            yield not_owned(TableId(row["schema"], row["name"]), row)


def refuse_strange(connection: Session, capture: Capture) -> None:
    """Refuse to make what is there already and belongs to somebody else (``SOURCE_OBJECT_OWNER``).

    A source of the name that another role had may have left it.
    """
    found = list(check_owners(connection, replace(capture, tables=())))
    if found:
        raise SourceError(
            " ".join(one.message for one in found),
            code=found[0].code,
            hint="\n".join(one.hint for one in found),
        )
