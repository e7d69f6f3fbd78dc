"""Tables of large rows are loaded by a worker whose memory all sources share."""

from __future__ import annotations

import pytest

from headrace.config.source import SourceSettings
from headrace.control import source
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.observe import pidfile
from tests.support.database import fresh_database
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]


def test_rows_of_any_size_are_loaded_without_the_worker_running_out_of_memory(
    stack: RunningStack, context: Context
) -> None:
    """Each table has more text than the worker has memory; small rows come first and promise small ones."""
    worker = pidfile.alive(stack.home.pidfile("connect"))
    with fresh_database(stack.endpoints.postgres_dsn, "heavy") as database:
        database.run(
            "CREATE TABLE docs (id int PRIMARY KEY, body text)",
            "INSERT INTO docs SELECT i, 'small' FROM generate_series(1, 5000) i",
            "INSERT INTO docs SELECT i, repeat(md5(i::text), 900) FROM generate_series(5001, 25000) i",
            "CREATE TABLE scans (id int PRIMARY KEY, body text)",
            "INSERT INTO scans SELECT i, repeat(md5(i::text), 90000) FROM generate_series(1, 150) i",
            # Sizes that nothing has announced: whole fetches of them follow small rows.
            "CREATE TABLE mixed (id int PRIMARY KEY, body text)",
            "INSERT INTO mixed SELECT i, 'small' FROM generate_series(1, 700) i",
            "INSERT INTO mixed SELECT i, repeat(md5(i::text), 3200) FROM generate_series(701, 1300) i",
            "INSERT INTO mixed SELECT i, 'small' FROM generate_series(1301, 2000) i",
            "INSERT INTO mixed SELECT i, repeat(md5(i::text), 30000) FROM generate_series(2001, 2064) i",
            "CREATE TABLE sudden (id int PRIMARY KEY, body text)",
            "INSERT INTO sudden SELECT i, repeat(md5(i::text), 160000) FROM generate_series(1, 12) i",
            "CREATE TABLE single (id int PRIMARY KEY, body text)",
            "INSERT INTO single SELECT 1, repeat('x', 40 << 20)",
        )
        settings = SourceSettings(max_record_bytes=8 << 20)
        try:
            entry = source.add(context, "heavy", database.dsn, settings=settings)
            ends = Kafka(context.kafka_bootstrap).ends([table.topic for table in entry.tables])
        finally:
            source.remove(context, "heavy")
    read = {topic.rpartition(".")[2]: end for (topic, _), (_, end) in ends.items()}
    assert read["docs"] >= 25_000
    assert read["scans"] >= 150
    assert read["mixed"] >= 2_064
    assert read["sudden"] >= 12
    assert read["single"] >= 1, "it is too large for a record, and told as that"
    assert pidfile.alive(stack.home.pidfile("connect")) == worker
