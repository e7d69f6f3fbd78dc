"""Commits of the application that would wait for our connector, and standbys that it would wait for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from connectors.postgres.granted import rows_if_granted
from connectors.postgres.session import Session, quoted, rows
from headrace.model.finding import Finding

__all__ = ["check_standby_slots", "check_synchronous"]

_SETTING = "SELECT current_setting('synchronous_standby_names') AS setting"
_STANDBYS = """
SELECT DISTINCT r.application_name AS name FROM pg_stat_replication r
WHERE r.application_name <> '' AND NOT EXISTS (
    SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
ORDER BY 1
"""
_ANY = re.compile(r'(?<![^\s,(])("\*"|\*)(?![^\s,)])')
"""Whoever connects, quoted or not: Postgres makes no difference here."""


def check_synchronous(connection: Session) -> Iterator[Finding]:
    """Yield a refusal where any receiver of the log counts as a standby that commits wait for.

    Our connector would be one: it confirms what Kafka has after some seconds, and nothing while it is paused.
    Names that our role may not see are left for a person to fill in.
    """
    (told,) = rows(connection, _SETTING)
    if not _ANY.search(told["setting"]):
        return
    standbys = rows_if_granted(connection, _STANDBYS)
    names = "…" if standbys is None else ", ".join(quoted(row["name"]) for row in standbys)
    others = _ANY.sub(lambda _: names, told["setting"]).replace("'", "''")
    mend = f"SET synchronous_standby_names = '{others}'" if names else "SET synchronous_standby_names = ''"
    yield Finding.error(
        "SOURCE_SYNCHRONOUS",
        f"synchronous_standby_names is {told['setting']}: commits of the application may wait for the"
        " connector, which counts as a standby there.",
        f"ALTER SYSTEM {mend}; SELECT pg_reload_conf();",
    )


_AWAITED = """
SELECT named.slot, EXISTS (SELECT FROM pg_replication_slots s
                           WHERE s.slot_name = named.slot AND s.active) AS active
FROM (SELECT btrim(one) AS slot
      FROM unnest(string_to_array(current_setting('synchronized_standby_slots', true), ',')) AS one) AS named
WHERE named.slot <> ''
"""


def check_standby_slots(connection: Session) -> Iterator[Finding]:
    """Yield a refusal where the connector would be told nothing, for a standby that reads nothing.

    From Postgres 17 on its slot is one that survives a failover, and such a slot waits for the standbys that
    the setting names.
    """
    named = rows(connection, _AWAITED)
    away = [row["slot"] for row in named if not row["active"]]
    if not away:
        return
    others = ", ".join(row["slot"] for row in named if row["active"])
    mend = f"SET synchronized_standby_slots = '{others}'"
    yield Finding.error(
        "SOURCE_STANDBY_SLOTS",
        f"synchronized_standby_slots names {', '.join(away)}, from which no standby reads: until one does,"
        " the connector is told nothing.",
        f"ALTER SYSTEM {mend}; SELECT pg_reload_conf();",
    )
