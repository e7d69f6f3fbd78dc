"""A table that changes under the stream: seen at the first record, followed on demand, equal again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli.context import open_context
from headrace.cli.main import app
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.control.runner import stop_engine
from tests.integration.test_control_pipeline import in_sync, until
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

SINKS = {"altersearch": "elasticsearch", "altercache": "redis", "alterlake": "delta"}


@dataclass(frozen=True)
class Place:
    """A table in three sinks."""

    context: Context
    stack: RunningStack
    database: Database

    def refresh(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        command = ["source", "refresh", "alter", "--json", *arguments, "--home", str(self.stack.home.root)]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == code, done.output
        said: dict[str, Any] = json.loads(done.output.splitlines()[-1])
        return said

    def reasons(self) -> set[str]:
        return {table.reason for table in lag.measure(self.context).tables if table.table == "public.things"}

    def equal(self) -> bool:
        """Compare every row in every sink with the table as it is now."""
        registry = Registry(self.context.registry)
        (table,) = (t for t in registry.source("alter").tables if t.schema.table.name == "things")
        names = [column.name for column in table.schema.columns]
        listed = ", ".join(f'"{name}"' for name in names)
        wanted = {str(row[0]): row for row in self.database.run(f"SELECT {listed} FROM things")}
        for entry in registry.sinks("alter"):
            with closing(sink.open_sink(entry)) as opened:
                found = {
                    stored.key: tuple(stored.row.get(name) for name in names)
                    for stored in opened.scan(table.schema)
                }
            if found != wanted:
                return False
        return True


@pytest.fixture(scope="module")
def place(stack: RunningStack) -> Iterator[Place]:
    context = open_context(stack.home.root)
    at = stack.endpoints
    settings = {
        "elasticsearch": {"url": at.elasticsearch_url},
        "redis": {"url": at.redis_url},
        "delta": {"path": str(at.lake_path / "alter")},
    }
    with fresh_database(at.postgres_dsn, "alter") as database:
        database.run(
            "CREATE TABLE things (id int PRIMARY KEY, name text, size int)",
            "CREATE TABLE others (id int PRIMARY KEY)",
            "INSERT INTO things SELECT i, 'n' || i, i FROM generate_series(1, 50) i",
        )
        source.add(context, "alter", database.dsn, settings=SourceSettings(heartbeat_ms=300), wait=False)
        for name, kind in SINKS.items():
            sink.add(context, name, kind, settings=settings[kind], source="alter", wait=False)
        until(lambda: in_sync(context))
        yield Place(context, stack, database)
        for name in SINKS:
            sink.remove(context, name, purge=True)
        source.remove(context, "alter")
    stop_engine(context.run)


def test_a_column_that_is_added_is_seen_and_followed(place: Place) -> None:
    assert place.equal()
    place.database.run(
        "BEGIN; INSERT INTO things VALUES (51, 'before', 51);"
        " ALTER TABLE things ADD COLUMN colour text DEFAULT 'grey';"
        " INSERT INTO things VALUES (52, 'after', 52, 'red'); COMMIT"
    )
    until(lambda: all("added: colour" in reason for reason in place.reasons()))
    assert not in_sync(place.context)
    remedies = {table.remedy for table in lag.measure(place.context).tables if table.reason}
    assert remedies == {"headrace source refresh alter"}
    (said,) = place.refresh("--dry-run")["changed"]
    assert (said["table"], said["added"]) == ("public.things", ["colour"])
    assert not in_sync(place.context)
    place.refresh()
    until(lambda: in_sync(place.context))
    assert place.equal()  # rows of before have the default
    assert place.refresh("--dry-run")["changed"] == []


def test_a_renamed_and_a_dropped_column_are_followed(place: Place) -> None:
    place.database.run(
        "ALTER TABLE things RENAME COLUMN name TO title",
        "ALTER TABLE things DROP COLUMN colour",
        "UPDATE things SET title = 'renamed' WHERE id = 1",
    )
    until(lambda: all("added: title" in reason for reason in place.reasons()))
    (said,) = place.refresh()["changed"]
    assert (said["added"], sorted(said["dropped"])) == (["title"], ["colour", "name"])
    place.database.run("DELETE FROM things WHERE id = 2", "INSERT INTO things VALUES (60, 'new', 60)")
    until(lambda: in_sync(place.context))
    assert place.equal()


def test_a_type_that_a_store_cannot_follow_is_refused_and_the_sinks_go_on(place: Place) -> None:
    until(lambda: in_sync(place.context))
    place.database.run("ALTER TABLE things ALTER COLUMN size TYPE bigint")
    error = place.refresh(code=1)["error"]
    assert error["code"] == "ES_MAPPING_CONFLICT"
    place.database.run("UPDATE things SET title = 'still' WHERE id = 3")
    until(lambda: in_sync(place.context))
    assert place.equal()


def test_a_changed_key_is_refused(place: Place) -> None:
    place.database.run("ALTER TABLE others ADD COLUMN b int NOT NULL DEFAULT 1")
    place.database.run("ALTER TABLE others DROP CONSTRAINT others_pkey, ADD PRIMARY KEY (id, b)")
    assert place.refresh("--dry-run", code=1)["error"]["code"] == "SOURCE_KEY_CHANGED"
