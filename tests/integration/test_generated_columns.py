"""Generated columns: stored ones, which no record carries, arrive as values of records do; virtual ones."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from connectors.postgres import PostgresSource
from headrace.control import lag
from headrace.control.refresh import refresh
from headrace.control.registry import Registry
from headrace.control.runs import start as runs
from headrace.control.runs.repository import active
from headrace.control.verdicts import State
from headrace.model.errors import named
from tests.support.mirror import Mirror, mirrored
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

VALUES = {
    "bool": ("true", "false"),
    "int2": ("-32768", "7"),
    "int8": ("9223372036854775807", "0"),
    "oid": ("4294967295", "1"),
    "float4": ("'0.1'::float4 / 3", "'NaN'"),
    "float8": ("0.1::float8 + 0.2", "'-Infinity'"),
    "numeric": ("'12345678901234567890.000000000012345'", "'NaN'"),
    "numeric(8,2)": ("1.1", "-999999.99"),
    "text": (r"E'ü€ %s \\ '' \n'", "''"),
    "char(5)": ("'ab'", "''"),
    "varchar(9)": ("'ab  '", "'x'"),
    "mood": ("'ü'", "'a'"),
    "uuid": ("'{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}'", "'00000000-0000-0000-0000-000000000000'"),
    "json": ("""'{"b" : 1,  "a":[1.10,null]}'""", "'null'"),
    "jsonb": ("""'{"b" : 1,  "a":[1.10,null]}'""", "'\"x\"'"),
    "bytea": (r"'\x00ff10275c'", "''"),
    "date": ("'0044-03-15'", "'9999-12-31'"),
    "time": ("'24:00'", "'04:05:06.789012'"),
    "time(0)": ("'04:05:06.789012'", "'00:00'"),
    "timestamp": ("'2024-03-10 02:30:00.000001'", "'1600-01-01 00:00'"),
    "timestamp(3)": ("'0044-03-15 01:02:03.4567'", "'9999-12-31 23:59:59.999'"),
    "inet": ("'10.0.0.1'", "'10.0.0.1/8'"),
    "cidr": ("'10.0.0.0/8'", "'::/0'"),
    "macaddr": ("'08:00:2b:01:02:03'", "'ffffffffffff'"),
    "tsvector": ("to_tsvector('simple', 'two words, two')", "''"),
    "int4range": ("'[1,5]'", "'empty'"),
    "daterange": ("'[2024-01-01,)'", "'(,)'"),
    "tsrange": ("'[2024-03-10 02:30,2024-03-11)'", "'(,2024-01-01)'"),
    "text[]": ("""ARRAY['NULL', NULL, 'a"b', '{}', 'ü€']""", "'{}'"),
    "int8[]": ("'{1,NULL,-9223372036854775808}'", "'{}'"),
    "uuid[]": ("'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'", "'{}'"),
}
"""Type → two values of it."""
TABLE = ", ".join(
    f'"{kind}" {kind}, "g {kind}" {kind} GENERATED ALWAYS AS ("{kind}") STORED' for kind in VALUES
)
NAMES = ", ".join(f'"{kind}"' for kind in VALUES)
FIRST = "<id>"
ROWS = [f"SELECT {FIRST}, {', '.join(pair[n] for pair in VALUES.values())}" for n in (0, 1)]
NOTHING = f"SELECT {FIRST}{', NULL' * len(VALUES)}"


def statements(first: int) -> list[str]:
    """Return the statements that insert three rows whose ids begin there."""
    rows = [*ROWS, NOTHING]
    return [f"INSERT INTO t (id, {NAMES}) {row.replace(FIRST, str(first + n))}" for n, row in enumerate(rows)]


def held(mirror: Mirror, table: str = "t") -> dict[str, dict[int, dict[str, Any]]]:
    return {name: {row["id"]: row for row in rows.values()} for name, rows in mirror.stored(table).items()}


def differing(mirror: Mirror) -> dict[tuple[str, int, str], tuple[Any, Any]]:
    """Return store, row and type → what a record brought and what was looked up, where they differ."""
    return {
        (name, number, kind): (row[kind], row[f"g {kind}"])
        for name, rows in held(mirror).items()
        for number, row in rows.items()
        for kind in VALUES
        if repr(row[kind]) != repr(row[f"g {kind}"])  # nan is not itself
    }


def test_stored_generated_columns_arrive_as_values_of_records_do(stack: RunningStack) -> None:
    """Every type: read by the snapshot, streamed, updated and read anew, in three stores."""
    with mirrored(
        stack,
        "computed",
        "CREATE TYPE mood AS ENUM ('a', 'ü')",
        f"CREATE TABLE t (id int PRIMARY KEY, {TABLE})",
        *statements(1),
    ) as mirror:
        assert {column.name for column in mirror.schema("t").columns} >= {f"g {kind}" for kind in VALUES}
        mirror.settle()
        assert differing(mirror) == {}
        mirror.database.run(*statements(4))
        mirror.database.run(f"UPDATE t SET ({NAMES}) = (SELECT {NAMES} FROM t WHERE id = 2) WHERE id = 1")
        mirror.settle()
        assert differing(mirror) == {}
        assert {frozenset(rows) for rows in held(mirror).values()} == {frozenset(range(1, 7))}
        for rows in held(mirror).values():
            assert rows[1]["g int2"] == 7
            assert rows[3]["g text"] is None
        runs.resnapshot(mirror.context, mirror.name, sweep_many=True)
        assert differing(mirror) == {}


@pytest.mark.deep
def test_expressions_that_are_added_changed_and_dropped(stack: RunningStack) -> None:
    """The database rewrites rows without a word, and a column begins or ceases to be told."""
    with mirrored(
        stack,
        "formula",
        "CREATE TABLE t (id int PRIMARY KEY, v int, w int, twice int GENERATED ALWAYS AS (v * 2) STORED)",
        "INSERT INTO t SELECT i, i, i FROM generate_series(1, 3) i",
    ) as mirror:

        def values(column: str) -> list[list[Any]]:
            return [[row.get(column) for _, row in sorted(rows.items())] for rows in held(mirror).values()]

        mirror.settle()
        assert values("twice") == [[2, 4, 6]] * 3
        mirror.database.run("ALTER TABLE t ADD thrice int GENERATED ALWAYS AS (v * 3) STORED")
        until(lambda: all(row == [3, 6, 9] for row in values("thrice")), why=lambda: values("thrice"))
        until(lambda: not active(Registry(mirror.context.registry), mirror.name))  # the follower's run

        mirror.database.run("ALTER TABLE t ALTER twice SET EXPRESSION AS (v * 20)")
        until(lambda: {t.state for t in lag.measure(mirror.context).tables} == {State.RESYNC_REQUIRED})
        runs.resnapshot(mirror.context, mirror.name, sweep_many=True)
        assert values("twice") == [[20, 40, 60]] * 3

        mirror.database.run(
            "ALTER TABLE t ALTER twice DROP EXPRESSION", "UPDATE t SET twice = 5 WHERE id = 1"
        )
        until(lambda: values("twice") == [[5, 40, 60]] * 3, why=lambda: values("twice"))
        refresh(mirror.context, mirror.name)
        assert not mirror.schema("t").by_name["twice"].computed
        assert values("twice") == [[5, 40, 60]] * 3
        mirror.database.run("UPDATE t SET twice = 6 WHERE id = 2")
        mirror.settle()
        assert values("twice") == [[5, 6, 60]] * 3

        mirror.database.run("ALTER TABLE t DROP w, ADD w int GENERATED ALWAYS AS (v * 5) STORED")
        until(lambda: {t.state for t in lag.measure(mirror.context).tables} == {State.RESYNC_REQUIRED})
        refresh(mirror.context, mirror.name)
        assert values("w") == [[5, 10, 15]] * 3
        mirror.settle()


@pytest.mark.deep
def test_a_virtual_column_is_given_another_expression_as_the_check_tells(stack: RunningStack) -> None:
    """Postgres refuses it of a published table; writers go on meanwhile."""
    expression = "ALTER TABLE t ALTER next SET EXPRESSION AS (id + 10)"
    with mirrored(
        stack,
        "virtual",
        "CREATE TABLE t (id int PRIMARY KEY, v text, next int GENERATED ALWAYS AS (id + 1) VIRTUAL)",
        "INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 3) i",
    ) as mirror:
        table = mirror.schema("t").table
        (told,) = (
            finding
            for finding in PostgresSource(mirror.database.dsn).preflight([table])
            if finding.code == "SOURCE_COLUMN_VIRTUAL"
        )
        mirror.settle()
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="part of a publication"):
            mirror.database.run(expression)

        def run(statement: str) -> None:
            update = ("UPDATE t SET v = v || '!'",) if "ALTER" in statement else ()
            mirror.database.run(statement, *update)

        hint = told.hint.replace("(…)", "(id + 10)").replace("headrace_SOURCE", f"headrace_{mirror.name}")
        carry_out(named(hint, source=mirror.name), stack.home.root, run)
        mirror.settle()
        wanted = dict(mirror.database.run("SELECT id, v FROM t"))
        assert set(wanted.values()) == {"v1!!", "v2!!", "v3!!"}
        assert mirror.database.run("SELECT next FROM t ORDER BY id") == [(11,), (12,), (13,)]
        found = {name: {n: row["v"] for n, row in rows.items()} for name, rows in held(mirror).items()}
        assert found == dict.fromkeys(found, wanted)
        assert len(found) == 3
