"""Rows that are too large for the connector's driver: found before a first load ends at them at each try.

The driver takes so many bytes of what it fetches at once, and ends its session at more. It counts each value
as the text that Postgres sends: a text as its bytes, a ``bytea`` in hexadecimal digits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.errors import LockNotAvailable
from psycopg.rows import DictRow

from connectors.postgres.glance import Question
from connectors.postgres.properties import FETCHED_BYTES, FIRST_ROWS
from connectors.postgres.session import Session, identifier, rows
from connectors.postgres.tree import with_leaves
from headrace.model.finding import Finding
from headrace.model.pasted import word
from headrace.model.schema import TableId

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = ["read_toasted", "too_large"]

_TOASTED = with_leaves("""
SELECT c.oid::bigint AS oid, coalesce(
    (SELECT max(pg_table_size(l.reltoastrelid)) FROM leaves_of(c) t JOIN pg_class l ON l.oid = t.relid),
    pg_table_size(c.reltoastrelid), 0) AS bytes
FROM pg_class c WHERE c.oid = ANY(%s::oid[])
""")
_AS_TEXT: LiteralString = "octet_length({0}::text)::bigint"
_EXACT: Mapping[str, tuple[int, LiteralString]] = {
    **dict.fromkeys(("text", "varchar", "citext", "xml"), (1, _AS_TEXT)),
    "bpchar": (1, "octet_length({0})::bigint"),  # as a text it would lose its blanks
    "bytea": (2, "2 * octet_length({0})::bigint + 2"),
}
"""Of a type how many bytes are sent for one that is kept, and how many of a value: by its header alone.

What is kept elsewhere is neither fetched nor decompressed for it.
"""
_OTHERS = {
    **dict.fromkeys(("json", "ltree"), 1),
    **dict.fromkeys(("hstore", "geometry", "geography"), 2),
    "jsonb": 6,  # a control character is told as \u0001
}
"""Of a type whose texts have to be made: how many bytes are sent at most for one that is kept.

More are sent for numbers such as ``1e100000``, which are kept as a few bytes. Of other types no value is
large: a ``tsvector`` has a mebibyte, a ``vector`` 16,000 numbers.
"""
_OF_LIST = 40
"""The same for arrays: a NULL is kept as one bit, and is sent as five bytes."""
_LZ4, _PGLZ = 255, 88
"""How many bytes may become one: ``pglz`` keeps 273 in three, with one of eight such."""
_BOUND: LiteralString = """
pg_column_size({0})::bigint * {1}
    * CASE pg_column_compression({0}) WHEN 'lz4' THEN {2} WHEN 'pglz' THEN {3} ELSE 1 END
"""
_PAGE = 8_192
"""A row has no more than a page within its table; all else of it is in the table's TOAST."""
_MOST_COLUMNS = 1_600
_LIMITED = ("varchar", "bpchar")


class _Sized:
    """A column that may hold large values.

    Args:
        row: What the catalogue says of it.
    """

    def __init__(self, row: DictRow) -> None:
        self.name = str(row["name"])
        name, exact = sql.Identifier(self.name), None if row["list"] else _EXACT.get(row["type"])
        self.times = exact[0] if exact else _OF_LIST if row["list"] else _OTHERS[row["type"]]
        self.sent = sql.SQL("coalesce({}, 0)").format(sql.SQL(exact[1] if exact else _AS_TEXT).format(name))
        """How many bytes are sent of the value, as SQL."""
        bound = sql.SQL(_BOUND).format(name, self.times, _LZ4, _PGLZ)
        self.bound = self.sent if exact else sql.SQL("coalesce({}, 0)").format(bound)
        """As many, or more, without its text, as SQL."""

    @staticmethod
    def may_be_large(row: DictRow) -> bool:
        if row["type"] in _LIMITED and row["modifier"] >= 0:
            return 4 * (int(row["modifier"]) - 4) * _MOST_COLUMNS > FETCHED_BYTES
        return bool(row["list"] or row["type"] in _EXACT or row["type"] in _OTHERS)


def read_toasted(connection: Session, tables: Collection[int]) -> Mapping[int, int]:
    """Return how many bytes large values take of tables, or of that partition where they take most.

    One query for all of them. None is told while somebody rewrites one for longer than a moment: what is not
    told may be any number.

    Args:
        connection: To the database, each statement a transaction.
        tables: Their numbers.
    """
    try:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '1s'")
            return {row["oid"]: row["bytes"] for row in rows(connection, _TOASTED, list(tables))}
    except LockNotAvailable:
        return {}


def too_large(
    table: TableId,
    columns: Sequence[DictRow],
    captured: Collection[str],
    key: Sequence[str],
    toasted: int | None,
) -> Question | None:
    """Return what is asked of a table's rows: an error when the driver would end a first load at some.

    That is a row of more bytes than it takes, or the first rows, which it fetches together. Bytes are those
    that the database keeps: where it is not in UTF8 more of them are sent.

    Args:
        table: Which table.
        columns: Its columns and their types.
        captured: Columns that are captured.
        key: Columns that tell its rows apart; where none do, the rows' places stand for them.
        toasted: How many bytes its large values take; None where that is not known.

    Returns:
        None where no row can be as large.
    """
    asked = [row for row in columns if row["name"] in captured and not row["generated"]]
    sized = [_Sized(row) for row in asked if _Sized.may_be_large(row)]
    if not sized or (toasted is not None and toasted < _least(sized)):
        return None
    sent = sql.SQL("ARRAY[{}]::bigint[]").format(sql.SQL(", ").join(one.sent for one in sized))
    bound = sql.SQL(" + ").join(one.bound for one in sized)
    large = sql.SQL("array_agg({}) FILTER (WHERE {} > {})").format(sent, bound, FETCHED_BYTES)
    first = sql.SQL("(SELECT array_agg({}) FROM (SELECT * FROM {} LIMIT {}) AS first_ones)")

    def tell(answer: Sequence[Any]) -> Iterator[Finding]:
        those = [row for row in answer[0] or () if sum(row) > FETCHED_BYTES]
        together = [sum(each) for each in zip(*answer[1] or (), strict=True)]
        ends = [*those, *([together] if sum(together) > FETCHED_BYTES else [])]
        if ends:
            out = [sized[number] for number in _without(ends)]
            first_ones = f"its first rows, {FIRST_ROWS} of which are fetched at once, take"
            what = "a row takes" if those else first_ones
            named = f"column{'s' if len(out) > 1 else ''} {', '.join(one.name for one in out)}"
            message = (
                f"{table}: {what} {_mib(max(map(sum, those or ends)))} MiB, as the connector's driver counts,"
                f" most of it in {named}. It fetches {_mib(FETCHED_BYTES)} MiB at most, so whatever reads the"
                " table would end there at each try."
            )
            yield Finding.error("SOURCE_VALUE_LARGE", message, _hint(table, out, key))

    def unseen(why: str) -> Finding:
        names = ", ".join(one.name for one in sized)
        message = (
            f"{table}: not all values of {names} could be looked at for what is too large for the connector's"
            f" driver: {why}."
        )
        return Finding.warning("SOURCE_VALUES_UNSEEN", message)

    return Question([large, first.format(sent, identifier(table), FIRST_ROWS)], tell, unseen)


def _least(sized: Sequence[_Sized]) -> int:
    """Return how many bytes of TOAST a table has at least that holds what is too large.

    They may be compressed, and a part of each row is in the table itself.
    """
    times = _LZ4 * max(one.times for one in sized)
    return max(1, FETCHED_BYTES // times - FIRST_ROWS * _PAGE)


def _without(ends: Sequence[Sequence[int]]) -> list[int]:
    """Return the numbers of columns without which all of it can be fetched, few of them."""
    out: list[int] = []
    left = [list(row) for row in ends]
    while sum(largest := max(left, key=sum)) > FETCHED_BYTES:
        number = max(range(len(largest)), key=largest.__getitem__)
        out.append(number)
        for row in left:
            row[number] = 0
    return out


def _hint(table: TableId, out: Sequence[_Sized], key: Sequence[str]) -> str:
    """Return the statement that finds the rows, and what is done with them."""
    which = sql.SQL(", ").join(map(sql.Identifier, key or ("ctid",)))
    bytes_ = sql.SQL(" + ").join(one.sent for one in out)
    seen = sql.SQL("SELECT {}, {} AS bytes FROM {} ORDER BY bytes DESC LIMIT 10")
    told = seen.format(which, bytes_, identifier(table)).as_string()
    left = word(f"{table}={','.join(one.name for one in out)}")
    one = "column" if len(out) == 1 else "columns"
    return (
        f"{told}  -- shorten these, or leave out the table; or the {one}, when the source is added:"
        f" --leave-out {left}"
    )


def _mib(number: int) -> str:
    """Return mebibytes, rounded up."""
    return f"{math.ceil(number / (1 << 20) * 10) / 10:,g}"
