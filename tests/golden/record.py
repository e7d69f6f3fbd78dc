"""Records what the real connector says of every type: ``python -m tests.golden.record`` (``make golden``).

Each value is inserted twice, before the snapshot and into the stream, and written to a file beside this one:
the type as the catalogue has it, the value's own text output, and the field's JSON text in Kafka. The local
stack has Postgres' own types (``types.jsonl``). With ``--extensions`` those of pgvector and PostGIS
are recorded instead (``extensions.jsonl``), on a server that has both and logs logically, for a superuser.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from connectors import registry as kinds
from connectors.base import Capture
from headrace.config.kafka import KafkaAddress
from headrace.control.connect import Connect
from headrace.control.kafka import Kafka, Topic
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.document import exact, json_text
from tests.golden.suite import BUILT_IN, EXTENSIONS, Suite
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack, running_stack

PLACEHOLDER = "__golden_unavailable__"
_STREAMED = 1_000
_IDENTITY = {"l": "DEFAULT", "f": "FULL"}
_UNCHANGED = {"l": "unchanged", "f": "unchanged, replica identity full"}
_TYPE = """
WITH RECURSIVE resolved AS (
    SELECT atttypid AS type, atttypmod AS typmod FROM pg_attribute
    WHERE attrelid = '{table}'::regclass AND attname = 'v'
  UNION ALL
    SELECT t.typbasetype, CASE WHEN t.typtypmod = -1 THEN r.typmod ELSE t.typtypmod END
    FROM resolved r JOIN pg_type t ON t.oid = r.type WHERE t.typtype = 'd'
)
SELECT t.typname, t.typtype::text, e.typname, e.typtype::text, r.typmod
FROM resolved r JOIN pg_type t ON t.oid = r.type AND t.typtype <> 'd'
LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid
"""
TEXT = "format('%s', v)"  # the type's own output, which a cast to text is not for all
ELEMENTS = (
    "ARRAY(SELECT CASE WHEN e IS NOT NULL THEN format('%s', e) END"
    " FROM unnest(v) WITH ORDINALITY u(e, n) ORDER BY n)"
)
TEXTS = {"hstore": "v::json::text", "interval": "v::text"}


def main() -> int:
    """Record, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make golden", description="Record what the connector says.")
    parser.add_argument("--extensions", metavar="URL", help="record pgvector and PostGIS, on this server")
    asked = parser.parse_args()
    suite = EXTENSIONS if asked.extensions else BUILT_IN
    with (
        running_stack() as stack,
        fresh_database(asked.extensions or stack.endpoints.postgres_dsn, "golden") as database,
    ):
        _record(suite, stack, database)
    return 0


def _record(suite: Suite, stack: RunningStack, database: Database) -> None:
    cases = suite.cases
    database.run(*suite.setup)
    tables = {f"t{number}": native for number, native in enumerate(cases)}
    for table, native in tables.items():
        database.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v {native})")
        _insert(database, table, native, cases[native], 0)
    large = {f"{how}{number}": native for how in "lf" for number, native in enumerate(suite.large)}
    for table, native in large.items():
        database.run(
            f"CREATE TABLE {table} (id int PRIMARY KEY, v {native}, other int)",
            f"ALTER TABLE {table} ALTER v SET STORAGE EXTERNAL",
            f"ALTER TABLE {table} REPLICA IDENTITY {_IDENTITY[table[0]]}",
            f"INSERT INTO {table} VALUES (1, ({suite.large[native]})::{native})",
        )
    capture = _capture(stack, database, [*tables, *large])
    for table, native in tables.items():
        _insert(database, table, native, cases[native], _STREAMED)
    for table in large:
        database.run(f"UPDATE {table} SET other = 1")
    wanted = {table: 2 * (len(cases[native]) + 1) for table, native in tables.items()}
    found = _read(stack, capture, wanted | dict.fromkeys(large, 2))
    with suite.records.open("w", encoding="utf-8") as stream:
        for table, native in tables.items():
            for line in _lines(database, table, native, found[table].values()):
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
        for table, native in large.items():
            first, last = (json_text(image["v"]) for _, image in sorted(found[table].items()))
            line = {"native": native, "type": _type(database, table), "phase": _UNCHANGED[table[0]]}
            stream.write(json.dumps(line | {"value": "" if last == first else last}) + "\n")


def _insert(database: Database, table: str, native: str, literals: Iterable[str], first: int) -> None:
    for number, literal in enumerate((*literals, "NULL")):
        database.run(f"INSERT INTO {table} VALUES ({first + number}, ({literal})::{native})")


def _capture(stack: RunningStack, database: Database, names: list[str]) -> Capture:
    """Set the connector up with every column, those too that a source would leave out."""
    source = kinds.build("postgres", database.dsn)
    columns = (Column("id", LogicalType.INT32),)
    tables = tuple(TableSchema(TableId("public", name), columns, ("id",)) for name in names)
    capture = Capture("golden", tables, PLACEHOLDER, source.password)
    source.setup(capture)
    topics = [capture.topic(schema.table) for schema in tables]
    Kafka(stack.endpoints.kafka_bootstrap).create([Topic(name, 1, {}) for name in topics])
    with Connect(stack.endpoints.connect_url) as connect:
        connect.create(capture.connector, source.properties(capture))
        connect.resume(capture.connector)
        deadline = time.monotonic() + 120
        while not (connect.state(capture.connector).running and source.hold(capture).active):
            if time.monotonic() > deadline:
                raise SystemExit(connect.state(capture.connector).trace)
            time.sleep(0.2)
    return capture


def _read(
    stack: RunningStack, capture: Capture, wanted: dict[str, int]
) -> dict[str, dict[tuple[int, int], Any]]:
    """Return table → offset, id → the row image, for as many records as were written."""
    found: dict[str, dict[tuple[int, int], Any]] = {table: {} for table in wanted}
    consumer = Consumer(
        {
            **KafkaAddress.parse(stack.endpoints.kafka_bootstrap).librdkafka(),
            "group.id": "golden",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(capture.topic(TableId("public", table)), 0, 0) for table in wanted])
    deadline = time.monotonic() + 120
    while any(len(found[table]) < count for table, count in wanted.items()):
        if time.monotonic() > deadline:
            raise SystemExit({t: (len(found[t]), c) for t, c in wanted.items() if len(found[t]) < c})
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        image = exact(message.value() or b"{}")["after"]
        table = (message.topic() or "").rpartition(".")[2]
        found[table][message.offset() or 0, int(image["id"])] = image
    consumer.close()
    return found


def _type(database: Database, table: str) -> list[Any]:
    (row,) = database.run(_TYPE.format(table=table))
    return list(row)


def _lines(database: Database, table: str, native: str, images: Iterable[Any]) -> list[dict[str, Any]]:
    by_id = {int(image["id"]): image for image in images}
    kind = _type(database, table)
    text_of = ELEMENTS if kind[2] else TEXTS.get(kind[0], TEXT)
    lines = []
    for number, text in database.run(
        f"SELECT id, CASE WHEN v IS NOT NULL THEN {text_of} END FROM {table} ORDER BY id"
    ):
        image = by_id[number]
        phase = "stream" if number >= _STREAMED else "snapshot"
        line = {"native": native, "type": kind, "phase": phase, "text": text}
        lines.append(line | ({"value": json_text(image["v"])} if "v" in image else {"missing": True}))
    return lines


if __name__ == "__main__":
    sys.exit(main())
