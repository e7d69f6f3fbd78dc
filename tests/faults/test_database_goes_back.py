"""The database is restored, or a standby takes over: what is lost is noticed, and nothing is made up."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from redis import Redis

from headrace.cli.context import open_context
from headrace.config.source import SourceSettings
from headrace.control import lag, recover, sink, source
from headrace.control.context import Context
from headrace.control.entries import WatchEntry
from headrace.control.registry import Registry
from headrace.control.runner import ensure_engine, stop_engine
from headrace.model.errors import SourceError
from headrace.observe import pidfile
from tests.support.database import Database
from tests.support.stack import RunningStack, running_stack
from tests.support.waiting import settle, stays, until

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(900)]

TIMELINE = "SELECT pg_walfile_name(pg_current_wal_lsn())::char(8)"


@dataclass(frozen=True)
class Place:
    """A stack of this file's own, and a table mirrored into its Redis."""

    running: RunningStack
    context: Context
    database: Database
    redis: Any

    @property
    def data(self) -> Path:
        return self.running.home.data("postgres")

    def rows(self) -> dict[int, str]:
        keys = list(self.redis.scan_iter("back:things:*"))
        return {row["id"]: row["name"] for row in map(json.loads, self.redis.mget(keys)) if row}

    def equal(self) -> bool:
        return self.rows() == dict(self.database.run("TABLE things"))

    def down(self) -> None:
        pidfile.stop(self.running.home.pidfile("postgres"), grace=30.0, request=signal.SIGINT)

    def up(self) -> None:
        self.running.stack.up(only={"postgres"})

    def copied(self, folder: Path) -> Path:
        """Return a copy of the data directory, taken between two times of streaming."""
        settle(self.context)
        self.down()
        subprocess.run(["cp", "-a", str(self.data), str(folder / "copy")], check=True)
        self.up()
        until(lambda: self.state()[0] == "streaming")
        return folder / "copy"

    def put_back(self, copy: Path) -> None:
        self.down()
        shutil.rmtree(self.data)
        subprocess.run(["cp", "-a", str(copy), str(self.data)], check=True)

    def promoted(self) -> None:
        """Start the data directory, of a server that is stopped, as a standby, and let it take over."""
        mark = self.data / "standby.signal"
        mark.touch()
        shutil.chown(mark, self.data.owner(), self.data.group())
        self.up()

        def took_over() -> bool:
            with suppress(psycopg.OperationalError):  # Connect's sessions may have all places
                if not self.database.value("SELECT pg_is_in_recovery()"):
                    return True
                self.database.run("SELECT pg_promote()")
            return False

        until(took_over)

    def mark(self) -> int:
        """Return the watcher's mark in the database, microseconds."""
        table = "headrace.back_heartbeat"
        value = f"SELECT (extract(epoch FROM at) * 1000000)::bigint FROM {table} WHERE id = 2"
        return int(self.database.value(value))

    def kept_mark(self) -> int:
        """Return the mark that the registry remembers."""
        with Registry(self.context.registry).begin() as session:
            return int(session.get_one(WatchEntry, "back").facts[""]["mark"] or 0)

    def state(self) -> tuple[str, str]:
        (seen,) = lag.measure(self.context).sources
        return seen.state.value, seen.reason

    def recovered(self) -> int:
        (seen,) = lag.measure(self.context).sources
        assert seen.remedy == "headrace recover back"
        done = recover.recover(self.context, "back")
        settle(self.context)
        assert self.equal()
        return done.wrong


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with running_stack(only={"postgres", "kafka", "connect", "redis"}) as running:
        context = open_context(running.home.root)
        at = running.endpoints
        # Not dropped at the end: no session outlives the server's stops, and the whole stack goes.
        Database(at.postgres_dsn).run("CREATE DATABASE goes_back")
        database = Database(urlunsplit(urlsplit(at.postgres_dsn)._replace(path="/goes_back")))
        with Redis.from_url(at.redis_url) as redis:
            database.run(
                "CREATE TABLE things (id int PRIMARY KEY, name text)",
                "INSERT INTO things SELECT i, 'n' || i FROM generate_series(1, 100) i",
            )
            source.add(context, "back", database.dsn, settings=SourceSettings(heartbeat_ms=300))
            sink.add(context, "backcache", "redis", settings={"url": at.redis_url}, source="back")
            yield Place(running, context, database, redis)
            stop_engine(context.run)


def test_a_restored_copy_is_noticed_at_the_next_look_and_recovered(place: Place, tmp_path: Path) -> None:
    copy = place.copied(tmp_path)
    place.database.run("INSERT INTO things SELECT i, 'lost' FROM generate_series(1001, 2000) i")
    settle(place.context)
    place.put_back(copy)
    place.up()
    place.database.run("INSERT INTO things VALUES (5000, 'never delivered')")
    until(lambda: place.state()[0] == "resync_required")
    assert "restored to an earlier state" in place.state()[1]
    # Past the position at which the connector waits it streams again; the verdict stays.
    place.database.run("SELECT pg_switch_wal()", "UPDATE things SET name = name || '+' WHERE id < 10")
    stays(lambda: place.state()[0] == "resync_required", 3)
    assert not place.equal()
    assert place.recovered() >= 1001


@pytest.mark.unlooked
def test_a_restored_copy_that_outgrew_its_former_end_before_anybody_looked(
    place: Place, tmp_path: Path
) -> None:
    copy = place.copied(tmp_path)
    before = place.mark()
    until(lambda: place.mark() > before)
    until(lambda: place.kept_mark() > before)
    place.database.run("UPDATE things SET name = 'forgotten' WHERE id <= 30")
    settle(place.context)
    ended = place.database.value("SELECT pg_current_wal_lsn()")
    stop_engine(place.context.run)
    place.put_back(copy)
    place.up()
    while place.database.value(f"SELECT pg_current_wal_lsn() <= '{ended}'"):
        place.database.run("UPDATE things SET name = name WHERE id = 100", "SELECT pg_switch_wal()")
    ensure_engine(place.context)
    until(lambda: place.state()[0] == "resync_required")
    assert "forgotten a mark" in place.state()[1]
    assert place.recovered() >= 30


@pytest.mark.unlooked
def test_a_restored_copy_is_noticed_though_nobody_asks(place: Place, tmp_path: Path) -> None:
    copy = place.copied(tmp_path)
    place.database.run("UPDATE things SET name = 'undone' WHERE id <= 20")
    settle(place.context)
    place.put_back(copy)
    place.up()
    registry = Registry(place.context.registry)
    until(lambda: "earlier state" in (registry.source("back").gap or ""))
    assert place.recovered() >= 20


def test_a_copy_that_is_restored_once_more_while_the_source_is_recovered(
    place: Place, tmp_path: Path
) -> None:
    copy = place.copied(tmp_path)

    def goes_back() -> None:
        place.put_back(copy)
        place.up()

    def say(line: str) -> None:
        if "every row is of the database as it is now" in line:
            goes_back()

    place.database.run("UPDATE things SET name = 'lost' WHERE id <= 5")
    settle(place.context)
    goes_back()
    until(lambda: place.state()[0] == "resync_required")
    with pytest.raises(SourceError) as caught:
        recover.recover(place.context, "back", say=say)
    assert (caught.value.code, caught.value.hint) == ("RECOVER_AGAIN", "headrace recover back")
    assert place.state()[0] == "resync_required"
    place.recovered()


def test_a_standby_that_has_all_that_was_delivered_takes_over_without_a_word(place: Place) -> None:
    settle(place.context)
    timeline = place.database.value(TIMELINE)
    source.pause(place.context, "back")
    until(lambda: place.state()[0] == "paused")
    place.down()
    place.promoted()
    until(lambda: place.state()[0] == "paused", why=place.state)  # it has still to be looked at
    for _ in range(3):
        assert place.state()[0] == "paused", place.state()
    source.resume(place.context, "back")
    place.database.run("INSERT INTO things VALUES (6000, 'of the new timeline')")
    settle(place.context)
    assert place.equal()
    assert place.database.value(TIMELINE) > timeline


def test_a_standby_that_lacks_what_was_delivered_is_noticed_and_recovered(
    place: Place, tmp_path: Path
) -> None:
    copy = place.copied(tmp_path)
    place.database.run("UPDATE things SET name = 'delivered, then lost' WHERE id <= 3")
    settle(place.context)
    place.put_back(copy)
    place.promoted()
    until(lambda: place.state()[0] == "resync_required")
    assert "timeline" in place.state()[1]
    assert place.recovered() >= 3
