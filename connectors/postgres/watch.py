"""One database, looked at again and again on a connection that is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from connectors.base import Capture, Hold
from connectors.postgres import catalogue, history, identity, left_out, partitions, setup
from connectors.postgres.asking import Asking
from connectors.postgres.courtesy import Courtesy
from connectors.postgres.differences import changed, lacking, unlike_registered
from connectors.postgres.facts import Facts, read_facts
from connectors.postgres.give_way import give_way
from connectors.postgres.granted import refused_for
from connectors.postgres.left_out import LeftOut
from connectors.postgres.money import Amounts, misread_now, read_amounts
from connectors.postgres.session import BY_INDEX, Session, connect, define, identifier, told_by
from connectors.postgres.standing import identified, refused, taken_back, wrong_now
from connectors.watch import Sight, Trouble
from headrace.model.errors import SourceError
from headrace.model.schema import Digits, TableId, TableSchema, declared_keys

__all__ = ["PostgresWatch"]

_PATIENCE = {
    "statement_timeout": "10s",
    "lock_timeout": "100ms",
    "jit": "off",
    **BY_INDEX,
    "default_transaction_read_only": "off",
    "synchronous_commit": "local",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "quote_all_identifiers": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
}
_KEPT_S = 30.0
"""A session is ended after so long: another server may have the name by then, while this one lives on."""
_PUBLICATION = ""
_BACK = "the database has forgotten a mark that was seen in it: it was restored to an earlier state"


class PostgresWatch:
    """See :class:`connectors.watch.Watch`."""

    def __init__(self, known: Mapping[str, str], capture: Capture) -> None:
        self._known, self._capture = known, capture
        self._leave_out = capture.settings.columns_left_out
        self._turn = threading.RLock()
        self._connection: Session | None = None
        self._courtesy: Courtesy  # of the session that is kept
        self._opened_s = 0.0
        self._timeline: int | None = None
        self._refused: set[TableId] = set()
        self._learnt: list[Any] = []
        self._full: Mapping[TableId, list[str]] = {}
        self._columns: dict[TableId, tuple[str, ...]] = {}
        self._digits: dict[TableId, dict[str, Digits]] = {}
        self._ancestry: dict[int, Mapping[int, int] | None] = {}

    def look(self, known: Mapping[str, Any]) -> Sight:
        with self._turn:
            return self._look(known)

    def give_way(self) -> int:
        with self._turn:
            if self._connection is None:
                return 0  # nobody looks just now, or any more
            try:
                return give_way(self._open(None), self._capture.connector)
            except psycopg.Error as error:
                self.close()
                raise self._unseen(error) from error

    def _look(self, known: Mapping[str, Any]) -> Sight:
        try:
            connection = self._open(known.get(_PUBLICATION, {}).get("timeline"))
            gave_way = give_way(connection, self._capture.connector)
            facts = read_facts(connection, self._capture)
            before = LeftOut.of(self._leave_out, known)
            chosen = self._chosen(before, facts)
            now = {
                table.quoted: {**row, **chosen.get(table.quoted, {})} for table, row in facts.tables.items()
            }
            self._learn(connection, facts, LeftOut.of(self._leave_out, now))
            ask = Asking(connection, self._courtesy)
            found = {schema.table: _parts(schema, known, facts, ask) for schema in self._capture.tables}
            troubles = tuple(self._troubles(connection, known, facts, found))
            hold = self._hold(connection)
            known_mark = _known_mark(known.get(_PUBLICATION, {}), hold.timeline)
            mark = known_mark
            if hold.timeline is not None:
                mark = history.renew_mark(connection, self._capture.heartbeat, known_mark)
            others = self._others(connection)
            empty = {
                schema.table: partitions.seen_empty(known.get(schema.table.quoted), row, ask)
                for schema in self._capture.tables
                for row in (facts.tables[schema.table],)
            }
        except psycopg.Error as error:
            self.close()
            raise self._unseen(error) from error
        told: dict[str, Any] = {
            table.quoted: {
                **facts.tables[table],
                "lacking": lacking(schema, facts.tables[table]),
                "questions": list(found[table].questions),
                "empty": empty[table],
                **chosen.get(table.quoted, {}),
            }
            for schema in self._capture.tables
            for table in (schema.table,)
        }
        told[_PUBLICATION] = {
            "publication": facts.publication,
            "horizon": facts.horizon,
            # A server in recovery has no timeline of its own; what was seen of the former one stays.
            "timeline": hold.timeline or known.get(_PUBLICATION, {}).get("timeline"),
            "mark": mark,
            left_out.TAKEN_OUT: left_out.taken_out(before, [schema.table for schema in self._capture.tables]),
        }
        back = _BACK if known_mark is not None and (mark or 0) < known_mark else ""
        renamed = left_out.renamed(self._leave_out, facts.tables, chosen)
        parted = tuple(table for table, row in facts.tables.items() if row["kind"] == "p")
        return Sight(
            told, troubles, hold, self._columns, others, parted, back, gave_way, renamed, self._digits
        )

    def close(self) -> None:
        with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _unseen(self, error: psycopg.Error) -> SourceError:
        denied = isinstance(error, psycopg.errors.InsufficientPrivilege)
        return (refused_for(self._known, error) if denied else None) or SourceError(
            "The database cannot be looked at just now.", code="SOURCE_UNREACHABLE"
        )

    def _open(self, timeline: int | None) -> Session:
        """Return the session that is kept, if it may still be with the server that the address leads to.

        Args:
            timeline: The one that the look before saw, by whichever session; None when it saw none.
        """
        kept_s = time.monotonic() - self._opened_s
        if self._connection is not None and (kept_s > _KEPT_S or timeline not in (None, self._timeline)):
            self.close()
        if self._connection is None:
            self._connection = connect(self._known, name="headrace watcher", settings=_PATIENCE)
            self._courtesy = Courtesy(self._connection)
            self._opened_s = time.monotonic()
        return self._connection

    def _hold(self, connection: Session) -> Hold:
        log = history.log_position(connection)
        self._timeline = log.timeline
        if log.timeline is not None and not self._ancestry.get(log.timeline):  # it may not have been told
            self._ancestry = {log.timeline: history.ancestry(self._known, log.timeline)}
        held = setup.hold(connection, self._capture)
        ancestry = self._ancestry.get(log.timeline or 0, {})
        return replace(held, flushed=log.flushed, timeline=log.timeline, ancestry=ancestry)

    def _others(self, connection: Session) -> tuple[TableId, ...]:
        captured = {schema.table for schema in self._capture.tables}
        schemas = sorted({table.schema for table in captured})
        return tuple(t for t in catalogue.list_tables(connection, schemas) if t not in captured)

    def _troubles(
        self,
        connection: Session,
        known: Mapping[str, Any],
        facts: Facts,
        found: Mapping[TableId, partitions.Found],
    ) -> Iterator[Trouble]:
        whole = known.get(_PUBLICATION)
        money = any(column.base == "money" for schema in self._capture.tables for column in schema.told)
        amounts = read_amounts(connection) if money else Amounts(())
        for schema in self._capture.tables:
            now, before = facts.tables[schema.table], known.get(schema.table.quoted)
            full = self._full.get(schema.table, [])
            yield from wrong_now(schema, now, facts, full)
            yield from misread_now(schema, amounts)
            yield from self._release(connection, schema, now, facts)
            if before is None:
                yield from unlike_registered(schema, now)
            if before is None or before["oid"] is None or now["oid"] is None:
                continue
            if before["oid"] != now["oid"]:
                yield Trouble(
                    schema.table,
                    "TABLE_ANEW",
                    True,
                    "another table has its name now: it was dropped and made anew, or renamed",
                )
                continue
            yield from changed(schema, before, now)
            yield from found[schema.table].troubles
            yield from taken_back(schema, before, now, full=bool(full) or self._spread)
            yield from _membership(schema, before, now)
            if whole is not None:
                yield from _altered(schema, whole["publication"], facts.publication)

    def _chosen(self, before: LeftOut, facts: Facts) -> dict[str, dict[str, Any]]:
        """Return, as facts of tables, which columns are left out."""
        return {
            table.quoted: {left_out.CHOSEN: before.carried(table, facts.tables[table])}
            for table in self._leave_out
            if table in facts.tables
        }

    def _learn(self, connection: Session, facts: Facts, leave_out: LeftOut) -> None:
        """Find out what needs whole rows and what would be captured, where columns or identities changed."""
        shapes = [
            [now["columns"], [(unit["name"], unit["identity"]) for unit in (now["units"] or {}).values()]]
            for now in facts.tables.values()
        ]
        if shapes == self._learnt:
            return
        self._learnt = shapes
        self._full = identity.wanting(connection, self._capture.tables)
        there = [table for table, now in facts.tables.items() if now["oid"] is not None]
        declared = declared_keys(self._capture.tables)
        left = catalogue.columns_left_out(connection, there, leave_out, declared)
        self._digits = catalogue.digits(connection, there, leave_out, declared)
        self._columns = {}
        for table in there:
            # What only lacks its replica identity is a trouble of its own, not a column that is gone.
            kept = set(self._full.get(table, ()))
            out = {name for name, _, why in left.get(table, ()) if why in catalogue.LEFT_OUT} - kept
            named = (column[0] for column in (facts.tables[table]["columns"] or {}).values())
            self._columns[table] = tuple(name for name in named if name not in out)

    @property
    def _spread(self) -> bool:
        return self._capture.settings.partitions > 1

    def _release(
        self, connection: Session, schema: TableSchema, now: Mapping[str, Any], facts: Facts
    ) -> Iterator[Trouble]:
        """Take a table out of the publication when the application's own statements fail because of it."""
        why = refused(now, facts.version) if now["oid"] is not None and now["member"] else ""
        if not why:
            self._refused.discard(schema.table)
            return
        said = f"{why}: Postgres refuses updates and deletes while the table is published"
        if schema.table in self._refused:  # seen twice: no migration under way
            drop = sql.SQL("ALTER PUBLICATION {} DROP TABLE ONLY {}")
            name = sql.Identifier(self._capture.connector)
            try:
                define(connection, drop.format(name, identifier(schema.table)))
            except psycopg.Error as error:
                if connection.closed:
                    raise
                # The look goes on: all that it has found stands, and the next one tries again.
                said += f", and it could not be taken out: {told_by(error)}"
            else:
                said = f"{why}; it was taken out of the publication, so that the application can update it"
        self._refused.add(schema.table)
        yield Trouble(schema.table, "IDENTITY_REFUSED", True, said, identified(schema, now, facts.version))


def _parts(schema: TableSchema, known: Mapping[str, Any], facts: Facts, ask: Asking) -> partitions.Found:
    """Return what happened to the partitions of a table that is the one of the look before."""
    now, before = facts.tables[schema.table], known.get(schema.table.quoted)
    if before is None or before["oid"] is None or before["oid"] != now["oid"]:
        return partitions.Found()
    return partitions.between(schema, before, now, known[_PUBLICATION]["horizon"], ask)


def _known_mark(before: Mapping[str, Any], timeline: int | None) -> int | None:
    """Return the mark that the database must have at least.

    A standby that takes over begins another timeline, and may lack our last mark without any loss.
    """
    same = timeline is None or timeline == before.get("timeline")
    return before.get("mark") if same else None


def _membership(schema: TableSchema, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Trouble]:
    if before["member"] and now["member"] and before["member"][:2] != now["member"][:2]:
        said = "the table was not in the publication for a while"
        yield Trouble(schema.table, "TABLE_UNPUBLISHED", True, said)


def _altered(
    schema: TableSchema, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None
) -> Iterator[Trouble]:
    if before is None or now is None or not (before["right"] and now["right"]):
        return
    if (before["oid"], before["version"]) != (now["oid"], now["version"]):
        said = "the publication was changed and put back: changes may not have been told"
        yield Trouble(schema.table, "PUBLICATION_CHANGED", True, said)
