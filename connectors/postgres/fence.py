"""The fence: the connector reads no other timeline of the log than the one that is known to be ours.

After a failover it would read on at once, before anybody has looked. What it then delivers cannot be told
from what it had from the former server, and nothing can be proven any more. So its task begins with a
statement that fails on another timeline, and it tries again every two seconds, until a look has proven that
nothing is missing and has moved the fence. The replication session itself does not run the statement; it
delivers no row of a table before a session that does has read the table's columns.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["fenced", "first_statements"]

_PROPERTY = "database.initial.statements"
_FILE = "pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_flush_lsn())"
_NOW = f"('x' || pg_catalog.left({_FILE}, 8))::bit(32)::int"
_SAYS = "'Headrace has not looked at this server yet: it is on timeline ' || {now} || ', not on {known}'"


def first_statements(connector: str, timeline: int | None) -> str:
    """Return what each session of the connector begins with.

    Args:
        connector: Its name. By this name the sessions are known that keep an application waiting.
        timeline: The one that it may read; None: every one.
    """
    name = f"SET application_name TO '{connector}'"
    if timeline is None:
        return name
    # A cast that fails needs no procedural language. A server in recovery refuses to tell its position.
    says = _SAYS.format(now=_NOW, known=timeline)
    return f"{name}; SELECT CASE {_NOW} WHEN {timeline} THEN 0 ELSE ({says})::int END"


def fenced(config: Mapping[str, str], connector: str, timeline: int | None) -> dict[str, str]:
    """Return the connector's properties with a fence around this timeline; None: without one."""
    return {**config, _PROPERTY: first_statements(connector, timeline)}
