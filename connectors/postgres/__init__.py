"""Postgres as a source: checks, catalogue, setup and the connector's properties."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg

from connectors.base import Capture, Columns, Hold, Keys, Left
from connectors.postgres import (
    built_upon,
    by_key,
    catalogue,
    fence,
    history,
    identity,
    owners,
    patience,
    preflight,
    publication,
    reread,
    rights,
    server,
    setup,
    suspects,
)
from connectors.postgres.address import address, check_address, parameters, resolved
from connectors.postgres.encryption import check_encryption
from connectors.postgres.give_way import give_way, yielding
from connectors.postgres.granted import refuse_ungranted
from connectors.postgres.left_out import LeftOut
from connectors.postgres.locks import read_locks
from connectors.postgres.lookup import PostgresLookup
from connectors.postgres.properties import CONNECTOR_CLASS, connector_properties, pattern
from connectors.postgres.pulse import Pulse
from connectors.postgres.session import Session, session
from connectors.postgres.watch import PostgresWatch
from connectors.row_count import RowCount
from connectors.watch import Watch
from headrace.model.errors import SourceError
from headrace.model.finding import Finding, Severity
from headrace.model.key import Key
from headrace.model.schema import TableId, TableSchema

__all__ = ["PostgresSource"]

_NOT_OURS_TO_DROP = ("SOURCE_CATALOGUE_RIGHT", "SOURCE_DENIED", "SOURCE_REFUSED")


def _refused(let_go: Callable[[], None]) -> tuple[str, str]:
    """Let go of something; return why the database does not let us, and what helps; empty when it does."""
    try:
        let_go()
    except SourceError as error:
        outage = isinstance(error.__cause__, psycopg.OperationalError)
        if outage or error.code not in _NOT_OURS_TO_DROP:
            raise
        return error.message, error.hint
    return "", ""


def _each(*texts: str) -> Iterator[str]:
    """Return the texts that say something, each once."""
    return iter(dict.fromkeys(filter(None, texts)))


def _large(connection: Session, schemas: Sequence[TableSchema], mib: int) -> tuple[TableId, ...]:
    readable = [schema.table for schema in schemas if not reread.why_unreadable(schema)]
    sizes = catalogue.sizes(connection, readable)
    return tuple(table for table in readable if sizes.get(table, 0) >= mib << 20)


class PostgresSource:
    """A Postgres database, see :class:`connectors.base.Source`.

    Args:
        dsn: libpq URL or key-value string.
        password: Used instead of one in ``dsn``; without either, ``PGPASSWORD`` or ``~/.pgpass`` may have it.
        name: What it is registered as; None while it is not.
        leave_out: Columns that are not to be captured.
        seen: The facts of the last look: what is left out has numbers there.
    """

    kind = "postgres"
    connector_class = CONNECTOR_CLASS

    def __init__(
        self,
        dsn: str,
        password: str | None = None,
        name: str | None = None,
        leave_out: Columns | None = None,
        seen: Mapping[str, Any] | None = None,
    ) -> None:
        self._leave_out = LeftOut.of(leave_out or {}, seen or {})
        self._known = parameters(dsn) | ({} if password is None else {"password": password})
        self._lookup = PostgresLookup(self._known)
        self._session = partial(session, self._known, whose=name or "URL")
        self._pulse = Pulse(self._session)
        self._patiently = partial(patience.apply, self._known, whose=name or "URL")

    @property
    def address(self) -> str:
        return address(self._known)

    @property
    def resolved(self) -> str:
        with self._session() as connection:
            return address(resolved(self._known, connection.info.get_parameters()))

    @property
    def password(self) -> str:
        with self._session() as connection:
            return connection.info.password or ""

    def tables(self, schemas: Sequence[str]) -> list[TableId]:
        with self._session() as connection:
            return catalogue.list_tables(connection, schemas)

    def preflight(
        self,
        tables: Sequence[TableId],
        keys: Keys | None = None,
        *,
        partitions: int = 1,
        readers: int = 1,
        by_run_mib: int | None = None,
    ) -> list[Finding]:
        with self._session(whose="") as connection:
            refuse_ungranted(connection)
            locks = read_locks(connection, tables)
            told = preflight.check_tables(
                connection,
                tables,
                keys or {},
                self._leave_out,
                spread=partitions > 1,
                unread=locks.refused(),
            )
            asked = server.check_server(connection, self._known, readers=readers)
            found = [*check_address(self._known), *asked, *told]
            unfit = {one.table for one in found if one.severity is Severity.ERROR}
            fit = [table for table in tables if table not in unfit]
            by_run: Sequence[TableId] = fit
            if by_run_mib is not None:
                by_run = self._by_run(connection, fit, keys or {}, by_run_mib) if locks.crowds(fit) else ()
            found += locks.check([table for table in fit if table not in by_run], by_run)
            return [*found, *check_encryption(connection, self._known)]

    def _by_run(
        self, connection: Session, tables: Sequence[TableId], keys: Keys, mib: int
    ) -> tuple[TableId, ...]:
        """Return which of the tables, all of them fit, a run is to read."""
        read = catalogue.read_tables(connection, tables, keys, self._leave_out)
        return _large(connection, read, mib)

    def catalogue(self, tables: Sequence[TableId], keys: Keys | None = None) -> list[TableSchema]:
        with self._session() as connection:
            return catalogue.read_tables(connection, tables, keys or {}, self._leave_out)

    def refuse_taken(self, capture: Capture) -> None:
        with self._session() as connection:
            setup.refuse_taken(connection, capture)
            owners.refuse_strange(connection, capture)

    def setup(self, capture: Capture) -> None:
        self._patiently(lambda connection: setup.create(connection, capture), makes=True)

    def teardown(self, capture: Capture, system: str | None = None) -> Left:
        # Each session asks where it is: a name may lead elsewhere by now.
        def drop_slot() -> None:
            with self._session() as connection:
                setup.refuse_elsewhere(connection, capture.connector, system)
                setup.drop_slot(connection, capture.connector)

        def forget(what: Callable[[Session, Capture], None]) -> tuple[str, str]:
            def work(connection: Session) -> None:
                setup.refuse_elsewhere(connection, capture.connector, system)
                what(connection, capture)

            return _refused(lambda: self._patiently(work))

        # What one may not be removed for keeps none of the others.
        slot, publication, tables = setup.leftovers(capture)
        refused = {
            slot: _refused(drop_slot),
            publication: forget(setup.forget_publication),
            tables: forget(setup.forget_tables),
            "DROP SCHEMA IF EXISTS headrace;": forget(setup.forget_schema),
        }
        left = [statement for statement, (why, _) in refused.items() if why]
        if tables in left:
            with self._session() as connection:
                place = left.index(tables)
                left[place:place] = built_upon.drops(connection, capture)
        why = "; ".join(_each(*(why for why, _ in refused.values())))
        hint = "\n".join(_each(*(helps for _, helps in refused.values())))
        return Left(tuple(left), why, slot=slot in left, hint=hint)

    def check_anew(self, capture: Capture) -> list[Finding]:
        with self._session(whose="") as connection:
            refuse_ungranted(connection)
            return [
                *check_address(self._known),
                *server.check_anew(connection, self._known),
                *owners.check_owners(connection, capture),
                *built_upon.check_built_upon(connection, capture),
            ]

    def leftovers(self, capture: Capture) -> tuple[str, ...]:
        return setup.leftovers(capture)

    def large(self, schemas: Sequence[TableSchema], mib: int) -> tuple[TableId, ...]:
        with self._session() as connection:
            return _large(connection, schemas, mib)

    def properties(self, capture: Capture, unread: Collection[TableId] = ()) -> dict[str, str]:
        with self._session() as connection:
            info = connection.info
            used = {"host": info.host, "port": str(info.port), "user": info.user, "dbname": info.dbname}
            version = info.server_version
        address = {**self._known, **used}
        return connector_properties(
            capture, address, version=version, unread=unread, leave_out=self._leave_out.every_name()
        )

    def fenced(self, capture: Capture, config: Mapping[str, str], timeline: int | None) -> dict[str, str]:
        known = self._known.get("dbname")
        return fence.fenced(config, capture, known or config.get("database.dbname", ""), timeline)

    def publish(self, capture: Capture) -> None:
        self._patiently(lambda connection: publication.publish(connection, capture))

    def hold(self, capture: Capture, *, loading: bool = False) -> Hold:
        with self._session() as connection:
            held = setup.hold(connection, capture, loading=loading)
            log = history.log_position(connection)
            weakened = identity.weakened(connection, capture.tables)
        ancestry = history.ancestry(self._known, log.timeline)
        return replace(held, weakened=weakened, flushed=log.flushed, timeline=log.timeline, ancestry=ancestry)

    def watch(self, capture: Capture) -> Watch:
        return PostgresWatch(self._known, capture)

    def lookup(
        self, schema: TableSchema, keys: Sequence[Key], columns: Sequence[str], seen: Collection[int]
    ) -> Mapping[Key, Mapping[str, Any]]:
        return self._lookup(schema, keys, columns, seen)

    def close(self) -> None:
        self._lookup.close()
        self._pulse.close()

    def rights_now(self, tables: Sequence[TableId]) -> dict[TableId, Finding]:
        with self._session() as connection:
            return {**catalogue.missing_now(connection, tables), **rights.rights_now(connection, tables)}

    def unfit_now(self, tables: Sequence[TableSchema]) -> dict[TableId, Finding]:
        with self._session() as connection:
            named = [schema.table for schema in tables]
            found = {**catalogue.missing_now(connection, named), **rights.rights_now(connection, named)}
            found = {**catalogue.rekeyed_now(connection, tables), **found}
            found = {**reread.unreadable_now(connection, tables), **found}
            seen = [schema for schema in tables if schema.table not in found]
            return {**found, **suspects.values_now(connection, seen)}

    def whole_rows(self, tables: Sequence[TableId]) -> dict[TableId, str]:
        with self._session() as connection:
            return identity.whole_rows(connection, tables)

    def give_way(self, capture: Capture) -> int:
        with self._session() as connection:
            return give_way(connection, capture.connector)

    def request_snapshot(
        self,
        capture: Capture,
        tables: Sequence[TableId],
        signal: str,
        rows: Mapping[TableId, Sequence[Key]] | None = None,
        after: Mapping[TableId, str] | None = None,
    ) -> None:
        wanted = [schema for schema in capture.tables if schema.table in tables]
        reread.refuse_unreadable(wanted)
        named = {schema.table: pattern(schema.table.schema, schema.table.name) for schema in wanted}
        order: dict[str, Any] = {"type": "incremental", "data-collections": list(named.values())}
        some = {s.table: by_key.condition(s, rows[s.table]) for s in wanted if rows and rows.get(s.table)}
        rest = {s.table: by_key.after(s, after[s.table]) for s in wanted if after and s.table in after}
        with self._session() as connection:
            if some or rest:
                order["additional-conditions"] = [
                    {"data-collection": named[table], "filter": condition.as_string(connection)}
                    for table, condition in {**rest, **some}.items()
                ]
            setup.insert_signal(connection, capture.signals, signal, "execute-snapshot", json.dumps(order))

    def steer_snapshot(self, capture: Capture, order: str, signal: str) -> None:
        told = json.dumps({"type": "incremental"})
        with self._session() as connection:
            setup.insert_signal(connection, capture.signals, signal, f"{order}-snapshot", told)
            if order == "stop":  # the connector does not carry it out, nor any later request, while it rests
                setup.insert_signal(connection, capture.signals, f"{signal}-r", "resume-snapshot", told)

    def forget_orders(self, capture: Capture, kept: Collection[str]) -> None:
        with self._session() as connection:
            setup.tidy(connection, capture.signals, kept)

    def answer_seconds(self) -> float:
        return self._pulse()

    def estimate_rows(self, tables: Sequence[TableId]) -> Mapping[TableId, int]:
        with self._session() as connection:
            return catalogue.estimate_rows(connection, tables)

    def count_rows(self, capture: Capture, table: TableId) -> RowCount:
        with self._session() as connection:
            yielding(connection, capture.connector)
            return catalogue.count_rows(connection, table)

    def select(self, statement: str) -> list[dict[str, object]]:
        with self._session() as connection:
            # Names in a person's statement are theirs, and so is the way to its rows.
            connection.execute("RESET search_path; RESET enable_hashjoin; RESET enable_mergejoin")
            cursor = connection.execute(statement.encode())
            return list(cursor.fetchall()) if cursor.description else []
