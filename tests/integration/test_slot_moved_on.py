"""A slot that is moved on while Connect does not answer: what lies between is told as lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from connectors.base import Capture
from headrace.control import watcher
from headrace.control.capture import source_of
from headrace.control.entries import WatchEntry
from headrace.control.registry import Registry
from headrace.control.unattended import moved_on
from headrace.model.errors import StackError
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.registered import lonely, register
from tests.support.servers import postgres_server
from tests.support.waiting import until

pytestmark = pytest.mark.stack

SLOT = "headrace_left"
MOVES = f"SELECT pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())"


class Left:
    """A source that was streamed, and that nobody reads from now."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.database, self.context = database, lonely(folder)
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        self.capture: Capture = register(self.context, "left", database.dsn, TableId("public", "t"))
        database.run(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
        self.registry = Registry(self.context.registry)
        with self.registry.begin() as session:
            session.add(WatchEntry(source="left", facts={}, at_ms=1))
        self.delivered, self.heard = 5, 0

    def ends(self, names: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
        return {(name, 0): (0, self.delivered) for name in names}

    def tail(self, *_: object) -> list[dict[str, Any]]:
        return [{"after": {"id": 1, "beat": 1}, "source": {"lsn": self.heard}}]

    def write(self) -> None:
        """Have the application write something."""
        self.database.run("INSERT INTO t SELECT count(*) FROM t")

    def look(self) -> str:
        """Look as the watcher does."""
        entry = self.registry.source("left")
        hold = source_of(self.context, entry).hold(self.capture)
        return moved_on(self.registry, cast("Any", self), self.capture, entry, hold)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server(18) as dsn:
        yield dsn


@pytest.fixture
def left(server: str, tmp_path: Path) -> Iterator[Left]:
    with fresh_database(server, "left") as database:
        left = Left(tmp_path, database)
        assert left.look() == ""
        left.write()
        assert left.look() == ""
        yield left
        until(lambda: database.run("SELECT 1 FROM pg_replication_slots WHERE active") == [])


def test_somebody_moves_it_on(left: Left) -> None:
    left.database.run(MOVES)
    said = left.look()
    assert said.startswith("the slot was moved past ")
    assert said.endswith(" bytes of WAL that were never read, while Connect did not answer")
    assert left.look() == said, "it may be noted only then"


def test_the_watcher_notes_it(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Connect does not answer."""
    monkeypatch.setattr(watcher, "Kafka", lambda _: left)
    guard, entry = watcher._Guard(left.context, "left"), left.registry.source("left")

    def look() -> str | None:
        hold = source_of(left.context, entry).hold(left.capture)
        with pytest.raises(StackError):
            guard._gap(entry, left.capture, cast("Any", SimpleNamespace(hold=hold, back="")), goes_on=True)
        return left.registry.source("left").gap

    assert look() is None
    left.database.run(MOVES)
    assert (look() or "").startswith("the slot was moved past ")


def test_somebody_reads_from_it(left: Left) -> None:
    dsn = psycopg.conninfo.make_conninfo(left.database.dsn, application_name="reader")
    left.write()
    with closing(psycopg.connect(dsn, replication="database", autocommit=True)) as other:
        started = other.pgconn.exec_(
            f"START_REPLICATION SLOT {SLOT} LOGICAL 0/0"
            f" (proto_version '1', publication_names '{SLOT}')".encode()
        )
        assert started.status == psycopg.pq.ExecStatus.COPY_BOTH, started.error_message
        assert left.look() == ""
    until(lambda: left.database.run("SELECT 1 FROM pg_replication_slots WHERE active") == [])
    left.database.run(f"SELECT count(*) FROM pg_logical_slot_get_binary_changes('{SLOT}', NULL, NULL,"
                      f" 'proto_version', '1', 'publication_names', '{SLOT}')")  # fmt: skip
    assert left.look().startswith("the slot was moved past ")


def test_the_connector_has_read_beside_a_connect_that_is_silent(left: Left) -> None:
    """It was there between two looks, and has confirmed what it has delivered."""
    left.delivered += 3
    left.database.run(MOVES)
    assert left.look() == ""
    left.write()
    assert left.look() == ""
    left.database.run(MOVES)
    assert left.look() != ""


def test_what_was_delivered_is_confirmed_later(left: Left) -> None:
    left.heard = left.database.value("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint") + 4096
    left.database.run(MOVES)
    assert left.look() == ""
