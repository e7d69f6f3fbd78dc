"""Tables of every shape, and what an application may do to each: the statements that must go on working."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from connectors.base import Keys
from connectors.postgres import PostgresSource
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId
from tests.support.database import Database

__all__ = ["SHAPES", "Shape", "fit", "found", "made", "outcomes", "shapes", "table"]


@dataclass(frozen=True, slots=True)
class Shape:
    """One table and what is done to it.

    Args:
        name: Of the table.
        ddl: What makes it.
        statements: What the application does, in this order, each in a transaction of its own.
        key: The key that is declared for it; empty for its primary key.
        since: The first major version of Postgres that knows it.
    """

    name: str
    ddl: tuple[str, ...]
    statements: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    since: int = 14


_ROWS = (
    "INSERT INTO {0} (id, v) VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
    "UPDATE {0} SET v = v || '!' WHERE id = 1",
    "UPDATE {0} SET id = 40 WHERE id = 4",
    "DELETE FROM {0} WHERE id = 2",
    "INSERT INTO {0} (id, v) VALUES (3, 'x') ON CONFLICT (id) DO UPDATE SET v = excluded.v",
    "INSERT INTO {0} (id, v) VALUES (3, 'x') ON CONFLICT DO NOTHING",
)
_ALTERS = (
    "ALTER TABLE {0} ADD COLUMN extra int DEFAULT 5",
    "UPDATE {0} SET extra = 6",
    "ALTER TABLE {0} ALTER extra TYPE bigint",
    "ALTER TABLE {0} RENAME extra TO more",
    "ALTER TABLE {0} ALTER more SET NOT NULL",
    "UPDATE {0} SET more = 7",
    "DELETE FROM {0} WHERE id = 40",
    "ALTER TABLE {0} DROP more",
    "CREATE INDEX ON {0} (v)",
    "GRANT SELECT ON {0} TO PUBLIC",
    "VACUUM {0}",
    "VACUUM FULL {0}",
    "ANALYZE {0}",
    "REINDEX TABLE {0}",
    "ALTER TABLE {0} SET LOGGED",
    "BEGIN; LOCK TABLE {0} IN ACCESS EXCLUSIVE MODE; COMMIT",
    "UPDATE {0} SET v = 'z'",
    "TRUNCATE {0}",
    "INSERT INTO {0} (id, v) VALUES (9, 'after')",
    "DELETE FROM {0}",
    "ALTER TABLE {0} RENAME TO {0}_2",
    "INSERT INTO {0}_2 (id, v) VALUES (9, 'after')",
    "UPDATE {0}_2 SET v = 'u'",
    "ALTER TABLE {0}_2 RENAME TO {0}",
)
_END = ("DROP TABLE {0} CASCADE",)
_PLAIN = "CREATE TABLE {0} (id int PRIMARY KEY, v text)"
_FULL = "ALTER TABLE {0} REPLICA IDENTITY FULL"


def _shape(
    name: str, *ddl: str, extra: tuple[str, ...] = (), key: tuple[str, ...] = (), since: int = 14
) -> Shape:
    done = (*_ROWS, *extra, *_ALTERS, *_END)
    return Shape(
        name,
        tuple(statement.replace("{0}", name) for statement in ddl),
        tuple(statement.replace("{0}", name) for statement in done),
        key,
        since,
    )


_PARTED = "CREATE TABLE {0} (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)"
_LEAVES = (
    "CREATE TABLE {0}_a PARTITION OF {0} FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE {0}_b PARTITION OF {0} FOR VALUES FROM (10) TO (100)",
)
_MOVES = (
    "CREATE TABLE {0}_c (id int PRIMARY KEY, v text)",
    "INSERT INTO {0}_c VALUES (150, 'attached')",
    "ALTER TABLE {0} ATTACH PARTITION {0}_c FOR VALUES FROM (100) TO (200)",
    "UPDATE {0} SET v = 'm' WHERE id = 150",
    "UPDATE {0} SET id = 5 WHERE id = 150",
    "TRUNCATE {0}_c",
    "ALTER TABLE {0} DETACH PARTITION {0}_b",
    "UPDATE {0}_b SET v = 'alone'",
    "DELETE FROM {0}_b",
    "CREATE TABLE {0}_d PARTITION OF {0} FOR VALUES FROM (10) TO (100)",
    "INSERT INTO {0} VALUES (50, 'd')",
    "DROP TABLE {0}_d",
)
_GENERATED = "CREATE TABLE {0} (id int PRIMARY KEY, v text, g text GENERATED ALWAYS AS (upper(v)) {1})"

SHAPES = (
    _shape("plain", _PLAIN),
    _shape("full_row", _PLAIN, _FULL),
    _shape("arrays", "CREATE TABLE {0} (id int PRIMARY KEY, v text, a numeric[])"),
    _shape("stored", _GENERATED.replace("{1}", "STORED")),
    _shape("stored_full", _GENERATED.replace("{1}", "STORED"), _FULL),
    _shape("stored_arrays", _GENERATED.replace("{1}", "STORED"), "ALTER TABLE {0} ADD a numeric[]"),
    _shape(
        "stored_arrays_full",
        _GENERATED.replace("{1}", "STORED"),
        "ALTER TABLE {0} ADD a numeric[]",
        _FULL,
        extra=("UPDATE {0} SET a = ARRAY[1.5]",),
    ),
    _shape(
        "stored_key",
        "CREATE TABLE {0} (id int UNIQUE NOT NULL, v text,"
        " g int GENERATED ALWAYS AS (id * 2) STORED PRIMARY KEY)",
    ),
    _shape(
        "stored_index",
        "CREATE TABLE {0} (id int PRIMARY KEY, v text, g int NOT NULL GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE UNIQUE INDEX {0}_both ON {0} (id, g)",
        "ALTER TABLE {0} REPLICA IDENTITY USING INDEX {0}_both",
    ),
    _shape("virtual", _GENERATED.replace("{1}", "VIRTUAL"), since=18),
    _shape("virtual_full", _GENERATED.replace("{1}", "VIRTUAL"), _FULL, since=18),
    _shape(
        "virtual_arrays", _GENERATED.replace("{1}", "VIRTUAL"), "ALTER TABLE {0} ADD a numeric[]", since=18
    ),
    _shape(
        "by_index",
        "CREATE TABLE {0} (id int PRIMARY KEY, v text, n int NOT NULL DEFAULT 0)",
        "CREATE UNIQUE INDEX {0}_wide ON {0} (id, n)",
        "ALTER TABLE {0} REPLICA IDENTITY USING INDEX {0}_wide",
    ),
    _shape(
        "listed",
        "CREATE TABLE {0} (id int PRIMARY KEY, v text, a numeric[])",
        "CREATE PUBLICATION {0}_own FOR TABLE {0} (id, v)",
        since=15,
    ),
    _shape(
        "listed_leaf",
        "CREATE TABLE {0} (id int PRIMARY KEY, v text, a numeric[]) PARTITION BY RANGE (id)",
        "CREATE TABLE {0}_a PARTITION OF {0} FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE {0}_b PARTITION OF {0} FOR VALUES FROM (10) TO (100)",
        "CREATE PUBLICATION {0}_own FOR TABLE {0}_a (id)",
        since=15,
    ),
    _shape(
        "filtered",
        "CREATE TABLE {0} (id int PRIMARY KEY, v text, n int NOT NULL GENERATED ALWAYS AS IDENTITY UNIQUE)",
        "ALTER TABLE {0} REPLICA IDENTITY USING INDEX {0}_n_key",
        "CREATE PUBLICATION {0}_own FOR TABLE {0} WHERE (n > 0)",
        since=15,
    ),
    _shape(
        "other_index",
        "CREATE TABLE {0} (id int PRIMARY KEY, v text, n int NOT NULL GENERATED ALWAYS AS IDENTITY UNIQUE)",
        "ALTER TABLE {0} REPLICA IDENTITY USING INDEX {0}_n_key",
    ),
    _shape("parted", _PARTED, *_LEAVES, extra=_MOVES),
    _shape(
        "parted_full",
        _PARTED,
        *_LEAVES,
        _FULL,
        "ALTER TABLE {0}_a REPLICA IDENTITY FULL",
        "ALTER TABLE {0}_b REPLICA IDENTITY FULL",
        extra=_MOVES,
    ),
    _shape("parted_arrays", _PARTED, "ALTER TABLE {0} ADD a numeric[]", *_LEAVES),
    _shape(
        "parted_nothing", _PARTED, *_LEAVES, "ALTER TABLE {0}_b REPLICA IDENTITY NOTHING", extra=_MOVES[:5]
    ),
    _shape(
        "parted_generated",
        "CREATE TABLE {0} (id int PRIMARY KEY, v text, g text GENERATED ALWAYS AS (upper(v)) STORED)"
        " PARTITION BY RANGE (id)",
        *_LEAVES,
        "ALTER TABLE {0}_b REPLICA IDENTITY FULL",
    ),
    _shape(
        "parent",
        _PLAIN,
        "CREATE TABLE {0}_kid (more int) INHERITS ({0})",
        extra=("INSERT INTO {0}_kid (id, v) VALUES (7, 'kid')", "UPDATE {0} SET v = 'all'"),
    ),
    _shape(
        "later_parent",
        _PLAIN,
        extra=(
            "CREATE TABLE {0}_kid () INHERITS ({0})",
            "INSERT INTO {0}_kid VALUES (7, 'kid')",
            "UPDATE {0} SET v = 'all'",
            "DELETE FROM {0}_kid",
            "DROP TABLE {0}_kid",
        ),
    ),
    _shape(
        "kid",
        "CREATE TABLE {0}_base (id int, v text)",
        "CREATE TABLE {0} (PRIMARY KEY (id)) INHERITS ({0}_base)",
    ),
    _shape(
        "secured",
        _PLAIN,
        "ALTER TABLE {0} ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE {0} FORCE ROW LEVEL SECURITY",
        "CREATE POLICY p ON {0} USING (id > 0)",
    ),
    _shape("half_logged", _PARTED, *_LEAVES, "ALTER TABLE {0}_b SET UNLOGGED"),
    _shape("unlogged", "CREATE UNLOGGED TABLE {0} (id int PRIMARY KEY, v text)"),
    _shape("late_key", "CREATE TABLE {0} (id int PRIMARY KEY DEFERRABLE, v text)"),
    _shape("keyless", "CREATE TABLE {0} (id int, v text)"),
    _shape("keyless_full", "CREATE TABLE {0} (id int, v text)", _FULL),
    _shape("nothing", _PLAIN, "ALTER TABLE {0} REPLICA IDENTITY NOTHING"),
    _shape("declared", "CREATE TABLE {0} (id int NOT NULL UNIQUE, v text)", _FULL, key=("id",)),
    _shape("declared_default", "CREATE TABLE {0} (id int NOT NULL UNIQUE, v text)", key=("id",)),
    _shape(
        "declared_beside",
        "CREATE TABLE {0} (n int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id int NOT NULL UNIQUE, v text)",
        "ALTER TABLE {0} REPLICA IDENTITY USING INDEX {0}_id_key",
        key=("id",),
    ),
)


def shapes(dsn: str) -> list[Shape]:
    """Return the shapes that a server knows."""
    with psycopg.connect(dsn) as connection:
        major = connection.info.server_version // 10_000
    return [shape for shape in SHAPES if shape.since <= major]


def made(database: Database, known: list[Shape]) -> None:
    """Make the tables."""
    for shape in known:
        database.run(*shape.ddl)


def outcomes(database: Database, shape: Shape) -> list[tuple[str, str]]:
    """Return each statement with the code that it ends with; 00000 when it works."""
    told: list[tuple[str, str]] = []
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '5s'")
        for statement in shape.statements:
            try:
                connection.execute(statement.encode())
                told.append((statement, "00000"))
            except psycopg.Error as error:
                told.append((statement, f"{error.sqlstate} {error.diag.message_primary}"))
    return told


def found(database: Database, shape: Shape) -> list[Finding]:
    """Return what the preflight says of a table."""
    keys: Keys = {table(shape): shape.key} if shape.key else {}
    return PostgresSource(database.dsn).preflight([table(shape)], keys)


def table(shape: Shape) -> TableId:
    """Return the name of a shape's table."""
    return TableId("public", shape.name)


def fit(database: Database, known: list[Shape]) -> list[Shape]:
    """Return the shapes that are not refused."""
    return [
        shape
        for shape in known
        if all(finding.severity is not Severity.ERROR for finding in found(database, shape))
    ]
