"""A column that is left out stays so under another name: nobody follows, and the connector drops it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from connectors.base import Capture
from connectors.postgres import PostgresSource
from headrace.config.source import SourceSettings
from headrace.control.alone import alone
from headrace.control.capture import source_of
from headrace.control.columns import compare
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.entries import WatchEntry
from headrace.control.keep_out import keep_out
from headrace.control.registry import Registry
from headrace.control.tables import tell_connector
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.registered import lonely, register

pytestmark = pytest.mark.stack

T = TableId("public", "users")
LEFT = {T: ["password_hash"]}
SETTINGS = SourceSettings(leave_out=(("public", "users", "password_hash"),))
BACK = ("ALTER TABLE others RENAME secret TO pw_hash", "ALTER TABLE others RENAME TO users")


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    with fresh_database(server.dsn, "renamed") as made:
        made.run("CREATE TABLE users (id int PRIMARY KEY, name text, password_hash text, notes text)")
        yield made


def names(source: PostgresSource) -> list[str]:
    (schema,) = source.catalogue([T])
    return [column.name for column in schema.columns]


def excluded(source: PostgresSource, capture: Capture) -> set[str]:
    """Return the columns of the table that the connector is told to leave out."""
    patterns = source.properties(capture)["column.exclude.list"].split(",")
    every = ("id", "name", "notes", "password_hash", "pw_hash", "secret")
    return {one for one in every if any(re.fullmatch(told, f"public.users.{one}") for told in patterns)}


@contextmanager
def patched_connect(monkeypatch: pytest.MonkeyPatch, has: dict[str, str]) -> Iterator[dict[str, str]]:
    """Have a worker answer that has a connector with these properties; yield them as they become."""
    with monkeypatch.context() as patch:
        patch.setattr(Connect, "config", lambda self, name: dict(has))
        for way in ("reconfigure", "replace"):
            patch.setattr(Connect, way, lambda self, name, told: has.update(told))
        yield has


def test_it_stays_left_out_under_every_name_that_it_is_given(database: Database) -> None:
    source = PostgresSource(database.dsn, leave_out=LEFT)
    capture = Capture("renamed", tuple(source.catalogue([T])), "placeholder", "password", settings=SETTINGS)
    source.setup(capture)
    watch, facts, told = source.watch(capture), cast("dict[str, Any]", {}), set[str]()
    try:
        facts = dict(watch.look(facts).facts)
        for done, now in (
            (("ALTER TABLE users RENAME password_hash TO pw_hash",), "pw_hash"),
            (("ALTER TABLE users RENAME pw_hash TO secret",), "secret"),
            (("ALTER TABLE users RENAME TO others",), ""),
            (
                ("ALTER TABLE others RENAME secret TO pw_hash", "ALTER TABLE others RENAME TO users"),
                "pw_hash",
            ),
        ):
            database.run(*done)
            told |= {now} - {""}
            sight = watch.look(facts)
            # Before what this look has seen is kept, too.
            known = PostgresSource(database.dsn, leave_out=LEFT, seen=facts)
            facts = dict(sight.facts)
            assert [one.code for one in sight.troubles if now and one.lasts] == []
            assert sight.renamed == ({T: (now,)} if now else {})
            if now:
                assert sight.columns[T] == ("id", "name", "notes")
                assert names(known) == ["id", "name", "notes"]
            after = PostgresSource(database.dsn, leave_out=LEFT, seen=facts)
            assert excluded(after, capture) == {"password_hash", *told}
        # Another column that has a name of before is a column like any other.
        database.run("ALTER TABLE users ADD secret text")
        again = PostgresSource(database.dsn, leave_out=LEFT, seen=facts)
        assert "secret" in names(again)
        widened = replace(capture, tables=tuple(again.catalogue([T])))
        assert excluded(again, widened) == {"password_hash", "pw_hash"}
        database.run("ALTER TABLE users DROP secret", "ALTER TABLE users RENAME name TO password_hash")
        sight = watch.look(facts)
        assert sight.columns[T] == ("id", "notes"), "the chosen name is left out, too"
        database.run(
            "DROP TABLE users",
            "CREATE TABLE users (id int PRIMARY KEY, pw_hash text, name text, password_hash text)",
        )
        sight = watch.look(sight.facts)
        assert sight.columns[T] == ("id", "name"), "both were left out"
    finally:
        watch.close()
        source.teardown(capture)


def test_it_stays_left_out_in_a_table_that_is_restored_from_a_dump(database: Database) -> None:
    """Numbers mean nothing there: it is known by the names that it had."""
    source = PostgresSource(database.dsn, leave_out=LEFT)
    capture = Capture("renamed", tuple(source.catalogue([T])), "placeholder", "password", settings=SETTINGS)
    source.setup(capture)
    watch = source.watch(capture)
    try:
        facts = watch.look({}).facts
        database.run("ALTER TABLE users RENAME password_hash TO pw_hash")
        facts = watch.look(facts).facts
        database.run(
            "DROP TABLE users", "CREATE TABLE users (id int PRIMARY KEY, pw_hash text, name text, notes text)"
        )
        for when in ("before somebody has looked at it", "after that"):
            known = PostgresSource(database.dsn, leave_out=LEFT, seen=facts)
            assert names(known) == ["id", "name", "notes"], when
            assert excluded(known, capture) == {"password_hash", "pw_hash"}, when
            told = {one.code for one in known.preflight([T])}
            assert "SOURCE_COLUMN_UNKNOWN" not in told, when
            sight = watch.look(facts)
            assert sight.columns[T] == ("id", "name", "notes"), when
            assert sight.renamed == {T: ("pw_hash",)}, when
            facts = sight.facts
    finally:
        watch.close()
        source.teardown(capture)


def test_it_stays_left_out_of_a_table_that_is_taken_out_and_comes_in_again(database: Database) -> None:
    database.run("CREATE TABLE other (id int PRIMARY KEY)")
    source = PostgresSource(database.dsn, leave_out=LEFT)
    both = tuple(source.catalogue([T, TableId("public", "other")]))
    capture = Capture("renamed", both, "placeholder", "password", settings=SETTINGS)
    source.setup(capture)
    watches = [source.watch(capture), source.watch(replace(capture, tables=both[1:])), source.watch(capture)]
    try:
        facts = watches[0].look({}).facts
        database.run("ALTER TABLE users RENAME password_hash TO pw_hash")
        facts = watches[0].look(facts).facts
        for _ in range(2):
            facts = watches[1].look(facts).facts
        known = PostgresSource(database.dsn, leave_out=LEFT, seen=facts)
        assert names(known) == ["id", "name", "notes"]
        assert "SOURCE_COLUMN_UNKNOWN" not in {one.code for one in known.preflight([T])}
        assert excluded(known, capture) == {"password_hash", "pw_hash"}
        assert watches[2].look(facts).columns[T] == ("id", "name", "notes")
        unseen = PostgresSource(database.dsn, leave_out=LEFT)
        assert "SOURCE_COLUMN_UNKNOWN" in {one.code for one in unseen.preflight([T])}
    finally:
        for watch in watches:
            watch.close()
        source.teardown(capture)


def test_a_captured_column_is_not_left_out_for_want_of_its_identity(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the connector is told of another that is left out."""
    database.run(
        "CREATE DOMAIN tags AS text[]",
        "ALTER TABLE users ADD tags tags",
        "ALTER TABLE users REPLICA IDENTITY FULL",
    )
    context: Context = lonely(tmp_path)
    capture = register(context, "renamed", database.dsn, T, leave_out=SETTINGS.leave_out)
    assert "tags" in capture.tables[0].by_name
    registry = Registry(context.registry)
    watch = source_of(context, registry.source("renamed")).watch(capture)
    try:
        facts = watch.look({}).facts
        has = dict(source_of(context, registry.source("renamed")).properties(capture))
        database.run(
            "ALTER TABLE users RENAME password_hash TO pw_hash", "ALTER TABLE users REPLICA IDENTITY DEFAULT"
        )
        sight = watch.look(facts)
        with registry.begin() as session:
            session.add(WatchEntry(source="renamed", facts=dict(sight.facts), at_ms=1))
        with patched_connect(monkeypatch, has):
            assert keep_out(context, registry, "renamed", sight.renamed)
            assert "pw_hash" in has["column.exclude.list"]
            assert "tags" not in has["column.exclude.list"]
            database.run("ALTER TABLE users RENAME pw_hash TO newest")  # which no look has seen
            source, before = source_of(context, registry.source("renamed")), has["column.exclude.list"]
            for new in ((), (T,)):
                has["column.exclude.list"] = before
                has["table.include.list"] = ""  # as when another table is taken in or out, or this one
                tell_connector(context, source, capture, lambda _: None, new=new)
                assert has["table.include.list"]
                assert "newest" in has["column.exclude.list"]
                assert ("tags" in has["column.exclude.list"]) == bool(new)
    finally:
        watch.close()
        source_of(context, registry.source("renamed")).teardown(capture)


def test_nobody_follows_a_column_that_was_left_out_under_another_name(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context: Context = lonely(tmp_path)
    capture = register(context, "renamed", database.dsn, T, leave_out=SETTINGS.leave_out)
    registry = Registry(context.registry)
    entry = registry.source("renamed")
    source = source_of(context, entry)
    watch = source.watch(capture)
    try:
        # A look of an older version has noted no numbers.
        facts = {
            name: {key: value for key, value in fact.items() if key != "chosen"}
            for name, fact in watch.look({}).facts.items()
        }
        with registry.begin() as session:
            session.add(WatchEntry(source="renamed", facts=facts, at_ms=1))
        database.run("ALTER TABLE users RENAME password_hash TO pw_hash")
        assert compare(context, "renamed").tables == []
        with patched_connect(monkeypatch, source.properties(capture)) as has:
            seen = {T: ("pw_hash",)}
            with alone(context, "renamed", "a test", lambda _: None):
                assert not keep_out(context, registry, "renamed", seen), "somebody works on it"
            assert "pw_hash" not in has["column.exclude.list"]
            assert keep_out(context, registry, "renamed", seen)
            assert "pw_hash" in has["column.exclude.list"]
            assert "password_hash" in has["column.exclude.list"], "the connector may be behind"
            assert keep_out(context, registry, "renamed", seen)
        (noted,) = registry.journal("source renamed", limit=9)
        assert noted.event == "columns left out under other names"
        database.run("ALTER TABLE users ADD COLUMN age int")
        (change,) = compare(context, "renamed").tables
        assert change.added == ("age",)
    finally:
        watch.close()
        source.teardown(capture)
