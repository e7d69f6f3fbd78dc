"""The fence: the connector reads no database and no timeline of its log but those that are ours.

Its driver may understand an address otherwise than we do, or a name may lead elsewhere some day. And after a
failover it would read on at once, before anybody has looked. What it then delivers cannot be told from what
it had from the former server, and nothing can be proven any more. So its task begins with a statement that
fails elsewhere, and it tries again every two seconds, until a look has proven that nothing is missing and has
moved the fence. The replication session itself does not run the statement; it delivers no row of a table
before a session that does has read the table's columns.

Within a cluster the name is enough for a source that is loaded: a slot is of one database by number, and goes
with it. So one that is made anew under the name has a gap.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectors.base import Capture

__all__ = ["ELSEWHERE", "fenced", "first_statements"]

_PROPERTY = "database.initial.statements"
_FILE = "pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_flush_lsn())"
_NOW = f"('x' || pg_catalog.left({_FILE}, 8))::bit(32)::int"
_SAYS = "'Headrace has not looked at this server yet: it is on timeline ' || {now} || ', not on {known}'"
_NAME = "pg_catalog.encode(pg_catalog.convert_to(pg_catalog.current_database()::text, 'UTF8'), 'hex')"
_CLUSTER = "(SELECT system_identifier::text FROM pg_catalog.pg_control_system())"
ELSEWHERE = "Headrace follows another database than"
"""How the error of a connector begins whose database is not the one that was asked for."""
# It is there for a moment, so that who looks for the connector's session in other databases finds it.
_ELSEWHERE = f"'{ELSEWHERE} ' || pg_catalog.current_database() || ' here' || pg_catalog.pg_sleep(2)::text"


def first_statements(connector: str, database: str, timeline: int | None, system: str | None) -> str:
    """Return what each session of the connector begins with.

    Args:
        connector: Its name. By this name the sessions are known that keep an application waiting.
        database: The name of the only database that it may read.
        timeline: The one that it may read; None: every one.
        system: The identity of the cluster that it may read; None: every one.
    """
    # A cast that fails needs no procedural language. In hex, for a name may have quotes and semicolons in it.
    cases = f"WHEN {_NAME} <> '{database.encode().hex()}' THEN ({_ELSEWHERE})::int"
    if system is not None:
        cases += f" WHEN {_CLUSTER} <> '{system}' THEN ({_ELSEWHERE})::int"
    if timeline is not None:
        # A server in recovery refuses to tell its position.
        says = _SAYS.format(now=_NOW, known=timeline)
        cases += f" WHEN {_NOW} <> {timeline} THEN ({says})::int"
    return f"SET application_name TO '{connector}'; SELECT CASE {cases} ELSE 0 END"


def fenced(
    config: Mapping[str, str], capture: Capture, database: str, timeline: int | None
) -> dict[str, str]:
    """Return the connector's properties with a fence around this timeline; None: around the name alone."""
    system = None if timeline is None else capture.system
    return {**config, _PROPERTY: first_statements(capture.connector, database, timeline, system)}
