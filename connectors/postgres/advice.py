"""Statements upon tables of the application that people are told to run: it is not to wait for them.

Each text works as it stands at psql's prompt, and wherever its statements are sent one by one. Remarks stand
in front of the statement that they are about, and hold no semicolon.
"""

from __future__ import annotations

__all__ = ["briefly", "unique_index"]

_LOCK_WAIT = "2s"
"""So long at most does a statement that is told wait for a lock."""
_BRIEFLY = f"SET lock_timeout = '{_LOCK_WAIT}'; /* it waits no longer for a lock, and may be given again */"


def briefly(*statements: str, does: str = "") -> str:
    """Return statements that keep all others off a table, and wait for its lock for a moment only.

    All later statements upon the table wait behind one that waits for such a lock.

    Args:
        statements: The statements; without any the text is empty.
        does: What the first does for long, while nobody can read or write the table.
    """
    told = " ".join(filter(None, statements))
    if not told:
        return ""
    remark = f" /* {does}: nobody can read or write the table meanwhile */" if does else ""
    return f"{_BRIEFLY}{remark} {told}"


def unique_index(table: str, columns: str, name: str = "") -> str:
    """Return what makes a unique index while the table is written; it runs in no transaction block.

    It waits for others as long as it takes: nobody waits behind it, and one that is given up leaves an index
    that is not valid.

    Args:
        table: The table, or a partition that has none itself, quoted.
        columns: The columns, quoted.
        name: The index's, when it is not Postgres' to choose; nothing is done where it is there already.
    """
    named = f"IF NOT EXISTS {name} " if name else ""
    remark = (
        "/* in no transaction. When it fails, drop the invalid index that it leaves, then give it again */"
    )
    return f"SET lock_timeout = 0; {remark} CREATE UNIQUE INDEX CONCURRENTLY {named}ON {table} ({columns});"
