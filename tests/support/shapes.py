# ruff: noqa: E501, ISC004
"""A database of odd tables, and what is done to them before and after they are followed.

Each table has a name that some part of the chain could stumble over, and something else to stumble over
besides: its key, its columns or how it is stored.
"""

from __future__ import annotations

from headrace.model.schema import TableId
from sinks.contract.specimens import AWKWARD_COLUMNS

__all__ = ["AFTER", "BEFORE", "KEYS_DECLARED", "MENDED", "ODD_SCHEMA", "UNREADABLE", "quoted"]

ODD_SCHEMA = "Odd.Schema 1%"
LONGEST = "ü" * 31 + "x"
"""63 bytes, which is as long as a name can be."""

COLUMNS = (
    *(name for name in AWKWARD_COLUMNS if name != "Upper"),
    *("_type", "_routing", "_seq_no", "_headrace_key", "__deleted", "__op", "__table", "before"),
    *(
        "after",
        "op",
        "source",
        "ts_ms",
        "order",
        "user",
        "ctid_",
        "a,b",
        "a\\b",
        " both ",
        "$x",
        "a/b",
        LONGEST,
    ),
)

KEYS = (
    *(
        "",
        " ",
        "  ",
        " lead",
        "trail ",
        "a:b",
        "a%3Ab",
        "a/b",
        "a|b",
        "a,b",
        "a%b",
        "a\nb",
        "\x01",
        "\\x00",
        "\\u0000",
    ),
    *(
        "null",
        "%null",
        "%empty",
        "NULL",
        "🙂",
        "é",
        "e\u0301",
        "ß",
        "SS",
        "{id}",
        "*",
        "a'b",
        'a"b',
        "a\\b",
        "\u2028",
    ),
    *("k" * 511, "k" * 512, "k" * 513, "k" * 1024, "k" * 1023 + "l", "ä" * 512, "🙂" * 256, "%" * 1024),
)


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _values(*rows: str) -> str:
    return ", ".join(f"({row})" for row in rows)


_COLUMNS = ", ".join(f"{quoted(name)} text" for name in COLUMNS)
_FILLED = ", ".join(_text(f"{number}: {name}") for number, name in enumerate(COLUMNS))
_SET = ", ".join(f"{quoted(name)} = {_text(name)} || id" for name in COLUMNS[::2])
_KEYS = [_text(key) for key in KEYS]
_BIG = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i)"

_MOVES = """
BEGIN; UPDATE {0} SET id = -1 WHERE id = 1; UPDATE {0} SET id = 1 WHERE id = 2; UPDATE {0} SET id = 2 WHERE id = -1; COMMIT
--
BEGIN; UPDATE {0} SET id = 103 WHERE id = 3; UPDATE {0} SET id = 203 WHERE id = 103; UPDATE {0} SET id = 303, n = 9 WHERE id = 203; COMMIT
--
BEGIN; UPDATE {0} SET id = 104 WHERE id = 4; DELETE FROM {0} WHERE id = 104; COMMIT
--
BEGIN; DELETE FROM {0} WHERE id = 5; UPDATE {0} SET id = 5 WHERE id = 6; COMMIT
--
BEGIN; UPDATE {0} SET id = 107 WHERE id = 7; UPDATE {0} SET id = 7, n = 70 WHERE id = 107; COMMIT
--
BEGIN; UPDATE {0} SET id = 108 WHERE id = 8; INSERT INTO {0} VALUES (8, 80, 'came after'); COMMIT
--
BEGIN; INSERT INTO {0} VALUES (50, 5, 'short'); UPDATE {0} SET id = 51 WHERE id = 50; UPDATE {0} SET n = 6 WHERE id = 51; COMMIT
--
BEGIN; DELETE FROM {0} WHERE id = 9; INSERT INTO {0} VALUES (9, 90, NULL); DELETE FROM {0} WHERE id = 9; INSERT INTO {0} VALUES (9, 91, 'twice'); COMMIT
--
BEGIN; SAVEPOINT s; UPDATE {0} SET id = 110 WHERE id = 10; ROLLBACK TO s; UPDATE {0} SET n = 11 WHERE id = 10; COMMIT
--
UPDATE {0} SET id = id + 1000 WHERE id BETWEEN 11 AND 20
--
UPDATE {0} SET id = id - 1 WHERE id BETWEEN 1011 AND 1020
"""


def _moved(table: str) -> tuple[str, ...]:
    return tuple(step.strip() for step in _MOVES.replace("{0}", table).split("--"))


_PARTED = quoted("Parted:räume")
_GENERATED = quoted("gen'q'. x")
_TEXTS = quoted("select")
_PAIRS = quoted("Upper")
_TRIPLES = quoted("upper")
_UUIDS = quoted("a-b")
_BYTES = quoted("🙂x")
_NUMBERS = quoted("100%")
_STAMPS = quoted(LONGEST)
_DAYS = quoted("-dash*")
_CLOCKS = quoted("clock")
_FLAGS = quoted("o;DROP")
_FLOATS = quoted("_lead$")
_WIDE = quoted("{pk}")
_COMMA = quoted("a,b\\c")
_DECLARED = quoted("Key;:=less")
_FAR = f"{quoted(ODD_SCHEMA)}.{quoted('order')}"

BEFORE = (
    f"CREATE TABLE {_PARTED} (id int, at date, note text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
    f"CREATE TABLE p25 PARTITION OF {_PARTED} FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')",
    f"CREATE TABLE p26 PARTITION OF {_PARTED} FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')"
    " PARTITION BY LIST (id)",
    "CREATE TABLE p26a PARTITION OF p26 FOR VALUES IN (1, 2, 3)",
    "CREATE TABLE p26b PARTITION OF p26 DEFAULT",
    f"INSERT INTO {_PARTED} SELECT i, '2025-12-30'::date + i, {_BIG} FROM generate_series(1, 9) i",
    f"CREATE TABLE {_GENERATED} (id int PRIMARY KEY, price numeric(10,2), n int,"
    ' total numeric GENERATED ALWAYS AS (price * n) STORED, "TOTALS" text, "a,b" int GENERATED ALWAYS AS (n) STORED,'
    ' a text, b text, "M" int GENERATED ALWAYS AS (n + 1) VIRTUAL)',
    f"INSERT INTO {_GENERATED} (id, price, n, \"TOTALS\", a, b) SELECT i, i * 1.1, i, 'T', 'a', 'b'"
    " FROM generate_series(1, 5) i",
    f"CREATE TABLE {_TEXTS} (k text PRIMARY KEY, note text)",
    f"INSERT INTO {_TEXTS} SELECT k, 'before' FROM (VALUES {_values(*_KEYS[::2])}) v(k)",
    f'CREATE TABLE {_PAIRS} ("select" text, ":" text, note text, "B" int GENERATED ALWAYS AS (1) STORED,'
    ' "A" int, PRIMARY KEY ("select", ":"))',
    f"INSERT INTO {_PAIRS} VALUES ('a:', 'b', '1'), ('a', ':b', '2'), ('', 'a:b', '3'), ('a:b', '', '4'),"
    " ('a%3A', 'b', '5')",
    f'CREATE TABLE {_TRIPLES} (note text, c date, a int, "B" text, PRIMARY KEY ("B", a, c))',
    f"INSERT INTO {_TRIPLES} VALUES ('1', '2026-01-01', 1, '1'), ('2', '0999-12-31', -1, '-1'), ('3', '9999-12-31', 0, '')",
    f"CREATE TABLE {_UUIDS} (k uuid PRIMARY KEY, note text)",
    f"INSERT INTO {_UUIDS} VALUES ('00000000-0000-0000-0000-000000000000', '0'),"
    " ('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'a')",
    f"CREATE TABLE {_BYTES} (k bytea PRIMARY KEY, note text)",
    rf"INSERT INTO {_BYTES} VALUES ('\x', 'none'), ('\x00', 'nul'), ('\x0000', 'two'), ('\xff00ff', 'ff'),"
    rf" (decode(repeat('ab', 1024), 'hex'), 'kilo')",
    f"CREATE TABLE {_NUMBERS} (k numeric PRIMARY KEY, note text)",
    f"INSERT INTO {_NUMBERS} VALUES (1.0, 'one'), (10, 'ten'), (0.00, 'zero'), (-0.50, 'half'), (1e30, 'big'),"
    " (1e-30, 'small'), ('NaN', 'nan'), ('-Infinity', 'low'), (repeat('9', 900)::numeric, 'nines')",
    f"CREATE TABLE {_STAMPS} (k timestamptz PRIMARY KEY, note text)",
    f"INSERT INTO {_STAMPS} VALUES ('2026-03-29 02:30+01', '1'), ('0001-01-01 00:00:00.000001+00', '2'),"
    " ('1969-12-31 23:59:59.999999+00', '3'), ('9999-12-31 23:59:59.999999+00', '4')",
    f"CREATE TABLE {_DAYS} (day date, at timestamp, note text, PRIMARY KEY (day, at))",
    f"INSERT INTO {_DAYS} VALUES ('2026-01-01', '2026-01-01 00:00', '1'),"
    " ('0001-01-01', '2026-01-01 00:00:00.100', '2'), ('9999-12-31', '0001-01-01 23:59:59.999999', '3')",
    f"CREATE TABLE {_CLOCKS} (clock time PRIMARY KEY, note text)",
    f"INSERT INTO {_CLOCKS} VALUES ('24:00', '1'), ('00:00', '2'), ('12:00:00.000001', '3')",
    "CREATE TYPE mood AS ENUM ('b', 'a', '')",
    f"CREATE TABLE {_FLAGS} (flag bool, name varchar(30), kind mood, note text, PRIMARY KEY (name, flag, kind))",
    f"INSERT INTO {_FLAGS} VALUES (true, 'true', 'a', '1'), (false, 'true', 'a', '2'), (true, '', '', '3')",
    f"CREATE TABLE {_FLOATS} (k float8 PRIMARY KEY, note text)",
    f"INSERT INTO {_FLOATS} VALUES (0, 'zero'), (0.1, 'tenth'), (1e300, 'big'), ('NaN', 'nan')",
    f"CREATE TABLE {_WIDE} (id int PRIMARY KEY, {_COLUMNS})",
    f"INSERT INTO {_WIDE} SELECT i, {_FILLED} FROM generate_series(1, 4) i",
    f"CREATE TABLE {_COMMA} (\"a,b\" int PRIMARY KEY, \"\\\" text)",
    f"INSERT INTO {_COMMA} SELECT i, 'before' FROM generate_series(1, 4) i",
    f"CREATE SCHEMA {quoted(ODD_SCHEMA)}",
    f'CREATE TABLE {_FAR} ("_id" int PRIMARY KEY, "_source" text)',
    f"INSERT INTO {_FAR} SELECT i, 'before' FROM generate_series(1, 4) i",
    "CREATE TABLE moves (id int PRIMARY KEY, n int, big text)",
    f"INSERT INTO moves SELECT i, i, {_BIG} FROM generate_series(1, 20) i",
    "CREATE TABLE moves_full (id int PRIMARY KEY, n int, big text)",
    "ALTER TABLE moves_full REPLICA IDENTITY FULL",
    f"INSERT INTO moves_full SELECT i, i, {_BIG} FROM generate_series(1, 20) i",
    "CREATE TABLE declared (id int NOT NULL UNIQUE, n int, big text)",
    "ALTER TABLE declared REPLICA IDENTITY USING INDEX declared_id_key",
    f"INSERT INTO declared SELECT i, i, {_BIG} FROM generate_series(1, 20) i",
    "CREATE TABLE declared_full (id int NOT NULL UNIQUE, n int, big text)",
    "ALTER TABLE declared_full REPLICA IDENTITY FULL",
    f"INSERT INTO declared_full SELECT i, i, {_BIG} FROM generate_series(1, 20) i",
    f'CREATE TABLE {_DECLARED} (note text, "a:b;c" int NOT NULL, "D,e" text NOT NULL, shift int PRIMARY KEY DEFERRABLE)',
    f'CREATE UNIQUE INDEX of_two ON {_DECLARED} ("D,e", "a:b;c") INCLUDE (note)',
    f"ALTER TABLE {_DECLARED} REPLICA IDENTITY FULL",
    f"INSERT INTO {_DECLARED} SELECT 'before', i, i::text, i FROM generate_series(1, 9) i",
    "CREATE TABLE parents (id serial PRIMARY KEY, name text)",
    "CREATE TABLE children (id serial PRIMARY KEY, parent int REFERENCES parents)",
    "CREATE TABLE bystanders (id serial PRIMARY KEY, name text)",
    "INSERT INTO parents (name) SELECT 'p' || i FROM generate_series(1, 30) i",
    "INSERT INTO children (parent) SELECT i FROM generate_series(1, 30) i",
    "INSERT INTO bystanders (name) SELECT 'b' || i FROM generate_series(1, 30) i",
)  # fmt: skip
"""The tables, and the rows that the snapshot finds."""

AFTER = (
    f"UPDATE {_PARTED} SET at = '2025-06-01' WHERE id = 5",
    f"UPDATE {_PARTED} SET at = at + 365 WHERE id = 1",
    f"UPDATE {_PARTED} SET id = 100 WHERE id = 3",
    f"CREATE TABLE p27 PARTITION OF {_PARTED} FOR VALUES FROM ('2027-01-01') TO ('2028-01-01')",
    f"INSERT INTO {_PARTED} VALUES (30, '2027-05-05', 'a new partition'), (31, '2026-05-05', 'known')",
    "CREATE TABLE p28 (LIKE p27 INCLUDING ALL)",
    f"ALTER TABLE {_PARTED} ATTACH PARTITION p28 FOR VALUES FROM ('2028-01-01') TO ('2029-01-01')",
    f"INSERT INTO {_PARTED} VALUES (40, '2028-05-05', 'attached empty'), (41, '2028-05-06', 'goes')",
    "INSERT INTO p28 VALUES (42, '2028-05-07', 'through the partition')",
    f"UPDATE {_PARTED} SET at = '2027-01-01' WHERE id = 40",
    f"DELETE FROM {_PARTED} WHERE id IN (2, 41)",
    f"DELETE FROM {_PARTED} WHERE at < '2026-01-01'",
    f"UPDATE {_GENERATED} SET price = price + 1, \"TOTALS\" = 'U' WHERE id < 3",
    f"UPDATE {_GENERATED} SET id = id + 10 WHERE id = 4",
    f"INSERT INTO {_GENERATED} (id, price, n, \"TOTALS\", a, b) VALUES (6, NULL, NULL, NULL, 'A', NULL)",
    f"DELETE FROM {_GENERATED} WHERE id = 5",
    f"INSERT INTO {_TEXTS} SELECT k, 'after' FROM (VALUES {_values(*_KEYS[1::2])}) v(k)",
    f"UPDATE {_TEXTS} SET note = 'updated' || length(k) WHERE k IN ({', '.join(_KEYS[::3])})",
    f"DELETE FROM {_TEXTS} WHERE k IN ({', '.join(_KEYS[::5])})",
    f"UPDATE {_TEXTS} SET k = k || ' ' WHERE k IN ('%null', 'a:b', {_text('k' * 1024)}, '*')",
    f"UPDATE {_TEXTS} SET k = repeat(k, 600) WHERE k = {_text('ß')}",
    f"BEGIN; DELETE FROM {_PAIRS} WHERE note = '1'; UPDATE {_PAIRS} SET \":\" = 'b', \"select\" = 'a:' WHERE note = '2'; COMMIT",
    f"INSERT INTO {_PAIRS} VALUES ('a', ':b', 'new'), (E'\\x01', E'\\n', 'control')",
    f"BEGIN; DELETE FROM {_PAIRS} WHERE note = '4';"
    f" UPDATE {_PAIRS} SET \"select\" = \":\", \":\" = \"select\" WHERE note IN ('3', '5'); COMMIT",
    f"UPDATE {_TRIPLES} SET c = c + 1 WHERE c < '9999-12-31'",
    f"INSERT INTO {_TRIPLES} VALUES ('4', '0001-01-01', 2147483647, ':'), ('5', '2026-02-28', 0, '0:')",
    f"DELETE FROM {_TRIPLES} WHERE \"B\" = ''",
    f"UPDATE {_UUIDS} SET k = 'ffffffff-ffff-ffff-ffff-ffffffffffff' WHERE note = '0'",
    f"UPDATE {_UUIDS} SET note = 'b' WHERE k = 'a0eebc999c0b4ef8bb6d6bb9bd380a11'",
    rf"UPDATE {_BYTES} SET k = '\x01' || k WHERE note IN ('nul', 'kilo', 'none')",
    rf"DELETE FROM {_BYTES} WHERE k = '\x0000'",
    rf"INSERT INTO {_BYTES} VALUES ('\x253a', 'percent'), ('\x61', 'a'), ('\x3631', 'its digits')",
    f"UPDATE {_NUMBERS} SET k = 1.00, note = 'one again' WHERE k = 1e0",
    f"DELETE FROM {_NUMBERS} WHERE k = 10.000",
    f"INSERT INTO {_NUMBERS} VALUES (10.0000, 'ten again'), (1.0000000000000000000000001, 'nearly'), ('Infinity', 'up')",
    f"UPDATE {_NUMBERS} SET k = 0 WHERE k = 0.000",
    f"UPDATE {_NUMBERS} SET note = note || '!' WHERE k IN ('NaN', 1e30, 1e-30, -0.5)",
    f"UPDATE {_NUMBERS} SET k = 9 WHERE note = 'nines'",
    f"UPDATE {_STAMPS} SET k = k + interval '1 microsecond' WHERE note < '3'",
    f"UPDATE {_STAMPS} SET note = 'old' WHERE note = '3'",
    f"SET TimeZone = 'Asia/Kathmandu'; INSERT INTO {_STAMPS} VALUES ('2026-01-01 00:00', 'local')",
    f"UPDATE {_DAYS} SET at = '2026-01-01 23:59:59.999999' WHERE note = '1'",
    f"UPDATE {_CLOCKS} SET clock = clock - interval '1 microsecond' WHERE note > '1'",
    f"UPDATE {_DAYS} SET note = 'x', at = at - interval '1 day' WHERE note = '2'",
    f"UPDATE {_FLAGS} SET flag = NOT flag WHERE name = ''",
    f"INSERT INTO {_FLAGS} VALUES (false, 'true:', 'a', '4'), (true, 'a', 'b', '5')",
    f"BEGIN; DELETE FROM {_FLAGS} WHERE note = '1'; UPDATE {_FLAGS} SET flag = true WHERE note = '2'; COMMIT",
    f"UPDATE {_FLOATS} SET k = '-0', note = 'minus' WHERE k = 0",
    f"UPDATE {_FLOATS} SET k = 0.1::float4 WHERE k = 0.1",
    f"UPDATE {_FLOATS} SET note = 'still' WHERE k = 'NaN'",
    f"UPDATE {_WIDE} SET {_SET} WHERE id < 3",
    f"DELETE FROM {_WIDE} WHERE id = 3",
    f"INSERT INTO {_WIDE} (id) VALUES (9)",
    f"UPDATE {_COMMA} SET \"\\\" = 'after' WHERE \"a,b\" = 1",
    f"DELETE FROM {_COMMA} WHERE \"a,b\" = 2",
    f'UPDATE {_FAR} SET "_source" = \'after\' WHERE "_id" = 1',
    f'UPDATE {_FAR} SET "_id" = 20 WHERE "_id" = 2',
    f'DELETE FROM {_FAR} WHERE "_id" = 3',
    *_moved("moves"),
    *_moved("moves_full"),
    *_moved("declared"),
    *_moved("declared_full"),
    f'UPDATE {_DECLARED} SET "a:b;c" = 100, "D,e" = \'x\' WHERE shift = 1',
    f"DELETE FROM {_DECLARED} WHERE shift IN (2, 3)",
    f"BEGIN; SET CONSTRAINTS ALL DEFERRED; UPDATE {_DECLARED} SET shift = 11 - shift WHERE shift BETWEEN 4 AND 7; COMMIT",
    f"UPDATE {_DECLARED} SET note = 'after' WHERE shift = 8",
    "TRUNCATE parents RESTART IDENTITY CASCADE",
    "INSERT INTO parents (name) VALUES ('first after')",
    "BEGIN; UPDATE bystanders SET name = 'lost'; TRUNCATE bystanders, parents, children RESTART IDENTITY;"
    " INSERT INTO bystanders (name) VALUES ('1'), ('2'); UPDATE bystanders SET id = 7 WHERE id = 1;"
    " INSERT INTO parents (name) VALUES ('p'); INSERT INTO children (parent) VALUES (1); COMMIT",
    "BEGIN; TRUNCATE children; ROLLBACK",
)  # fmt: skip
"""What is done while they are followed."""

MENDED = (
    f"ALTER TABLE {_PARTED} DETACH PARTITION p25",
    "INSERT INTO p25 VALUES (99, '2025-01-01', 'no longer of the table')",
    f"CREATE TABLE p29 (LIKE {_PARTED} INCLUDING ALL)",
    "INSERT INTO p29 VALUES (50, '2029-01-01', 'filled before it was attached')",
    f"ALTER TABLE {_PARTED} ATTACH PARTITION p29 FOR VALUES FROM ('2029-01-01') TO ('2030-01-01')",
    f"ALTER TABLE {_PARTED} DETACH PARTITION p28",
    "TRUNCATE p27",
)
"""What the stream does not tell of: rows that come or go with their partition."""

KEYS_DECLARED = {
    TableId("public", "declared"): ("id",),
    TableId("public", "declared_full"): ("id",),
    TableId("public", "Key;:=less"): ("a:b;c", "D,e"),
}
"""What identifies the rows of the tables that have no primary key, or one that is of no use."""

UNREADABLE = {"order", "gen'q'. x"}
"""Tables that the connector cannot read anew, for the name of the table or of its schema."""
