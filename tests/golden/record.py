"""Records what the real connector says of every type: ``python -m tests.golden.record`` (``make golden``).

Each value is inserted twice, before the snapshot and into the stream, and written to ``types.jsonl`` beside
this file: the type as the catalogue has it, the value's own text output, and the field's JSON text in Kafka.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from connectors import registry as kinds
from connectors.base import Capture
from headrace.control.connect import Connect
from headrace.control.kafka import Kafka, Topic
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.document import exact, json_text
from tests.golden.cases import CASES, LARGE, SETUP
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack, running_stack

RECORDS = Path(__file__).with_name("types.jsonl")
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
    with running_stack() as stack, fresh_database(stack.endpoints.postgres_dsn, "golden") as database:
        database.run(*SETUP)
        tables = {f"t{number}": native for number, native in enumerate(CASES)}
        for table, native in tables.items():
            database.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v {native})")
            _insert(database, table, native, 0)
        large = {f"{how}{number}": native for how in "lf" for number, native in enumerate(LARGE)}
        for table, native in large.items():
            database.run(
                f"CREATE TABLE {table} (id int PRIMARY KEY, v {native}, other int)",
                f"ALTER TABLE {table} ALTER v SET STORAGE EXTERNAL",
                f"ALTER TABLE {table} REPLICA IDENTITY {_IDENTITY[table[0]]}",
                f"INSERT INTO {table} VALUES (1, ({LARGE[native]})::{native})",
            )
        capture = _capture(stack, database, [*tables, *large])
        for table, native in tables.items():
            _insert(database, table, native, _STREAMED)
        for table in large:
            database.run(f"UPDATE {table} SET other = 1")
        wanted = {table: 2 * (len(CASES[native]) + 1) for table, native in tables.items()}
        found = _read(stack, capture, wanted | dict.fromkeys(large, 2))
        with RECORDS.open("w", encoding="utf-8") as stream:
            for table, native in tables.items():
                for line in _lines(database, table, native, found[table].values()):
                    stream.write(json.dumps(line, ensure_ascii=False) + "\n")
            for table, native in large.items():
                first, last = (json_text(image["v"]) for _, image in sorted(found[table].items()))
                line = {"native": native, "type": _type(database, table), "phase": _UNCHANGED[table[0]]}
                stream.write(json.dumps(line | {"value": "" if last == first else last}) + "\n")
    return 0


def _insert(database: Database, table: str, native: str, first: int) -> None:
    for number, literal in enumerate((*CASES[native], "NULL")):
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
            "bootstrap.servers": stack.endpoints.kafka_bootstrap,
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
