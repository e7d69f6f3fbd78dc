"""What our role may not do with a table, or does not see of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psycopg.rows import DictRow

from connectors.postgres.granted import rows_if_granted
from connectors.postgres.session import Session, quoted, rows
from headrace.model.finding import Finding
from headrace.model.pasted import remark
from headrace.model.schema import TableId

__all__ = ["check_defaults", "check_rights", "not_owned", "rights_now"]

_RIGHTS = """
SELECT n.nspname::text AS schema, c.relname::text AS name,
       c.relrowsecurity AND NOT (r.rolsuper OR r.rolbypassrls
           OR (pg_has_role(c.relowner, 'USAGE') AND NOT c.relforcerowsecurity)) AS filtered,
       true AS owned, r.rolname::text AS role,
       has_table_privilege(c.oid, 'SELECT') AS readable,
       has_schema_privilege(c.relnamespace, 'USAGE') AS reachable
FROM unnest(%s::text[], %s::text[]) AS wanted(schema, name)
JOIN pg_namespace n ON n.nspname = wanted.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
JOIN pg_roles r ON r.rolname = current_user
"""

# Who owns a table or a schema may grant itself what is lacking, but has not got it.
_DEFAULTS = """
SELECT w.kind, min(r.rolname::text) AS role, string_agg(w.need, ', ' ORDER BY w.place) AS lacking
FROM (VALUES (1, 'TABLES', 'r', 'SELECT'), (2, 'TABLES', 'r', 'INSERT'), (3, 'TABLES', 'r', 'UPDATE'),
             (4, 'TABLES', 'r', 'DELETE'), (5, 'SCHEMAS', 'n', 'USAGE'), (6, 'SCHEMAS', 'n', 'CREATE'))
     AS w(place, kind, code, need)
JOIN pg_roles r ON r.rolname = current_user AND NOT r.rolsuper
JOIN pg_default_acl d ON d.defaclrole = r.oid AND d.defaclnamespace = 0 AND d.defaclobjtype::text = w.code
LEFT JOIN pg_namespace n ON n.nspname = 'headrace'
WHERE (w.code = 'r' OR n.oid IS NULL OR %s)
  AND NOT EXISTS (SELECT 1 FROM pg_default_acl g, aclexplode(g.defaclacl) a
                  WHERE g.defaclrole = r.oid AND g.defaclobjtype = d.defaclobjtype
                    AND (g.defaclnamespace = 0 OR g.defaclnamespace = n.oid) AND a.privilege_type = w.need
                    AND (a.grantee = 0 OR pg_has_role(a.grantee, 'USAGE')))
GROUP BY w.kind ORDER BY w.kind
"""


def check_defaults(connection: Session, *, anew: bool = False) -> Iterator[Finding]:
    """Yield what our role may not do with tables and a schema that it makes itself, by default privileges.

    Args:
        connection: To the database.
        anew: Whether the schema is made also where it is there.
    """
    lacking = rows_if_granted(connection, _DEFAULTS, anew) or []
    if lacking:
        role = lacking[0]["role"]
        what = ", and ".join(f"{row['lacking']} on {row['kind'].lower()}" for row in lacking)
        yield Finding.error(
            "SOURCE_CREATE_RIGHT",
            f"Default privileges deny the role {role} {what} that it makes itself.",
            " ".join(
                f"ALTER DEFAULT PRIVILEGES FOR ROLE {quoted(role)} GRANT {row['lacking']} ON {row['kind']}"
                f" TO {quoted(role)};"
                for row in lacking
            ),
        )


def rights_now(connection: Session, tables: Sequence[TableId]) -> dict[TableId, Finding]:
    """Return why our role does not see every row of some tables; without such tables it is empty."""
    found: dict[TableId, Finding] = {}
    for row in rows(connection, _RIGHTS, [t.schema for t in tables], [t.name for t in tables]):
        table = TableId(row["schema"], row["name"])
        for finding in check_rights(table, row):
            found.setdefault(table, finding)
    return found


def check_rights(table: TableId, row: DictRow) -> Iterator[Finding]:
    """Yield what our role lacks, given the catalogue's word on the table."""
    role = quoted(row["role"])
    if not row["owned"]:
        yield not_owned(table, row)
    if not (row["readable"] and row["reachable"]):
        yield Finding.error(
            "SOURCE_SELECT_RIGHT",
            f"{table} may not be read.",
            f"GRANT USAGE ON SCHEMA {quoted(table.schema)} TO {role};"
            f" GRANT SELECT ON {table.quoted} TO {role};",
        )
    if row["filtered"]:
        yield Finding.error(
            "SOURCE_ROW_SECURITY",
            f"Row security hides rows of {table} from the snapshot, but not from the stream.",
            f"ALTER ROLE {role} BYPASSRLS;",
        )


def not_owned(table: TableId, row: DictRow) -> Finding:
    """Return that a table to be published belongs to a role whose rights ours does not have.

    Args:
        table: Which.
        row: Its ``owner``, our ``role``, and whether that ``inherits`` the rights of roles that it joins;
            None from Postgres 16 on, where each membership says so itself.
    """
    owner, role = quoted(row["owner"]), quoted(row["role"])
    grant = f"GRANT {owner} TO {role}{' WITH INHERIT TRUE' if row['inherits'] is None else ''};"
    if row["inherits"] is False:
        grant += f" ALTER ROLE {role} INHERIT;"
    return Finding.error(
        "SOURCE_TABLE_OWNER",
        f"{table} belongs to {row['owner']}; only its owner may publish it.",
        f"{grant}  -- or add the source as {remark(row['owner'])}",
        table,
    )
