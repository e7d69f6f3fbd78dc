"""Short looks at the values of tables; what goes wrong with one is that table's trouble alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

from connectors.postgres.courtesy import Courtesy
from connectors.postgres.session import Session, identifier, rows, rows_within, told_by
from headrace.model.finding import Finding
from headrace.model.schema import TableId

__all__ = ["Glances", "Question", "Typed", "Unanswered", "read_typed"]

_PATIENCE_S = 3.0
_OVER = "the tables before it have taken the time that there is for all"

_TYPED = """
WITH RECURSIVE resolved AS (
    SELECT w.schema, w.name AS "table", a.attnum, a.attname, a.atttypid AS type, a.atttypmod AS modifier,
           a.attgenerated <> '' AS generated
    FROM unnest(%s::text[], %s::text[]) AS w(schema, name)
    JOIN pg_namespace n ON n.nspname = w.schema
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT r.schema, r.table, r.attnum, r.attname, t.typbasetype, greatest(r.modifier, t.typtypmod),
           r.generated
    FROM resolved r JOIN pg_type t ON t.oid = r.type WHERE t.typtype = 'd'
)
SELECT r.schema, r.table, r.attname AS name, t.typname AS type, e.typname AS element,
       t.typcategory = 'A' AS list, r.modifier, r.generated
FROM resolved r JOIN pg_type t ON t.oid = r.type AND t.typtype <> 'd'
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
ORDER BY r.schema, r.table, r.attnum
"""

Typed = Mapping[TableId, Sequence[DictRow]]
"""Of each table the columns, with the types that these, or their domains, are of."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of all rows of a table.

    Args:
        asked: Aggregates, as SQL.
        tell: Returns what their values, in that order, say.
        unseen: Returns what is said when there was no answer, which is why.
    """

    asked: Sequence[sql.Composable]
    tell: Callable[[Sequence[Any]], Iterator[Finding]]
    unseen: Callable[[str], Finding]


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Why a query has no answer, and whether there was no time for it."""

    why: str
    late: bool


def read_typed(connection: Session, tables: Sequence[TableId]) -> Typed:
    """Return the columns of those tables that exist, whatever kind of relation they are."""
    found: dict[TableId, list[DictRow]] = {}
    for row in rows(connection, _TYPED, [t.schema for t in tables], [t.name for t in tables]):
        found.setdefault(TableId(row["schema"], row["table"]), []).append(row)
    return found


class Glances:
    """Looks at one table after another.

    Args:
        connection: To the database, each statement a transaction. A look for which anybody waits is ended.
        at_most_s: How long all of them together may take; None: as long as each takes.
    """

    def __init__(self, connection: Session, at_most_s: float | None = None) -> None:
        self._connection = connection
        self._courtesy = Courtesy(connection)
        self._left_s = at_most_s

    def tell(self, table: TableId, *questions: Question | None) -> Iterator[Finding]:
        """Yield what the rows of a table answer to all questions, read once.

        Raises:
            psycopg.Error: When the session has ended.
        """
        put = [question for question in questions if question]
        asked = [one for question in put for one in question.asked]
        if not asked:
            return
        named = (sql.SQL("{} AS {}").format(one, sql.Identifier(str(n))) for n, one in enumerate(asked))
        answer = self.ask(sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(named), identifier(table)))
        if isinstance(answer, Unanswered) and len(put) > 1:
            # One may be refused, or take too long, and the other not. Time is for the first one only.
            yield from self.tell(table, put[0])
            for question in put[1:]:
                yield from [question.unseen(answer.why)] if answer.late else self.tell(table, question)
            return
        if isinstance(answer, Unanswered):
            yield from (question.unseen(answer.why) for question in put)
            return
        values = iter([answer[str(number)] for number in range(len(asked))])
        for question in put:
            yield from question.tell([next(values) for _ in question.asked])

    def ask(self, statement: sql.Composed) -> DictRow | Unanswered:
        """Return the one row of a query; or, when there was no time or the database refuses it, why.

        Raises:
            psycopg.Error: When the session has ended.
        """
        patience_s = _PATIENCE_S if self._left_s is None else min(_PATIENCE_S, self._left_s)
        if patience_s <= 0:
            return Unanswered(_OVER, late=True)
        began = time.monotonic()
        try:
            with self._courtesy.looking():
                (answer,) = rows_within(self._connection, int(patience_s * 1000), statement)
            return answer
        except psycopg.Error as error:
            if self._connection.closed:
                raise
            late = isinstance(error, (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable))
            return Unanswered(told_by(error), late)
        finally:
            if self._left_s is not None:
                self._left_s -= time.monotonic() - began
