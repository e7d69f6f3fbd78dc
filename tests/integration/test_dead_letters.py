"""Records that a real store refuses: the stream goes on, the repair and a replay heal, nothing is hidden."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fastavro
import httpx
import pytest
import redis
from confluent_kafka import Producer
from sqlalchemy import select
from typer.testing import CliRunner

from headrace.cli.context import open_context
from headrace.cli.main import app
from headrace.config.kafka import KafkaAddress
from headrace.config.source import SourceSettings
from headrace.control import lag, sink, source
from headrace.control.context import Context
from headrace.control.registry import JournalEntry, Registry
from headrace.control.runs import start as runs
from headrace.control.runs.repository import run_of
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.patience import WAIT_S
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import settle, stays, until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300), pytest.mark.usefixtures("honest")]

TOO_DEEP = '{"a":' * 150 + "1" + "}" * 150
TOPIC = "letters.public.notes"


@dataclass(frozen=True)
class Place:
    """A table in two sinks."""

    context: Context
    stack: RunningStack
    database: Database
    cache: redis.Redis
    alias: str

    def document(self, key: int) -> dict[str, Any] | None:
        url = f"{self.stack.endpoints.elasticsearch_url}/{self.alias}/_doc/{key}"
        answer = httpx.get(url, timeout=WAIT_S)
        source: dict[str, Any] | None = answer.json().get("_source") if answer.status_code == 200 else None
        return source

    def cached(self, key: int) -> dict[str, Any]:
        text = self.cache.get(f"letters:notes:{key}")
        row: dict[str, Any] = json.loads(str(text)) if text else {}
        return row

    def headrace(self, *words: str, code: int = 0) -> dict[str, Any]:
        done = CliRunner().invoke(app, [*words, "--json", "--home", str(self.stack.home.root)])
        assert done.exit_code == code, done.output
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return said

    def dlq(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        return self.headrace("dlq", *arguments, code=code)

    def waiting(self, sink_name: str) -> list[dict[str, Any]]:
        letters: list[dict[str, Any]] = self.dlq("list", "--sink", sink_name)["letters"]
        return letters

    def state(self, sink_name: str) -> lag.SinkLag:
        return next(one for one in lag.measure(self.context).sinks if one.sink == sink_name)


@pytest.fixture(scope="module")
def place(stack: RunningStack) -> Iterator[Place]:
    context = open_context(stack.home.root)
    at = stack.endpoints
    with fresh_database(at.postgres_dsn, "letters") as database:
        database.run(
            "CREATE TABLE notes (id int PRIMARY KEY, title text, doc jsonb, big text)",
            "ALTER TABLE notes ALTER big SET STORAGE EXTERNAL",
            "INSERT INTO notes SELECT i, 'n' || i, '{}', repeat('b', 9000) FROM generate_series(1, 3) i",
        )
        # In one chunk a table would be read before anybody sees it being read.
        settings = SourceSettings(heartbeat_ms=300, snapshot_chunk_rows=100)
        source.add(context, "letters", database.dsn, settings=settings, wait=False)
        search, _ = sink.add(
            context,
            "lettersearch",
            "elasticsearch",
            settings={"url": at.elasticsearch_url},
            source="letters",
            wait=False,
        )
        sink.add(context, "lettercache", "redis", settings={"url": at.redis_url}, source="letters")
        settle(context)
        with redis.Redis.from_url(at.redis_url, decode_responses=True) as cache:
            yield Place(context, stack, database, cache, search.tables[TOPIC]["alias"])
        for name in ("lettersearch", "lettercache"):
            sink.remove(context, name, purge=True)
        source.remove(context, "letters")


def test_a_mapping_conflict_is_set_aside_mended_and_replayed(place: Place) -> None:
    """Its time is that of the source and the sinks, which this file shares."""
    fresh = secrets.token_hex(5000)
    place.database.run(f"UPDATE notes SET doc = '{TOO_DEEP}', big = '{fresh}' WHERE id = 1")
    place.database.run("UPDATE notes SET title = 'later' WHERE id = 1")
    place.database.run("INSERT INTO notes VALUES (4, 'n4', '{}', 'small')")
    until(lambda: place.document(4) is not None)
    until(lambda: len(place.waiting("lettersearch")) == 2)
    # The second one says nothing of `big`, which the first one changed.
    first, second = place.waiting("lettersearch")
    assert first["row"] == second["row"] == "1"
    untouched = place.document(1)
    assert untouched is not None
    assert untouched["title"] == "n1"
    until(lambda: place.state("lettersearch").state is lag.State.DEGRADED)
    assert "1 row is behind" in place.state("lettersearch").reason
    assert not lag.measure(place.context).in_sync
    until(lambda: place.cached(1).get("title") == "later")

    shown = place.dlq("show", str(first["number"]))
    raw = base64.b64decode(shown["value"]["base64"])
    assert json.loads(raw)["after"]["big"] == fresh
    assert json.loads(base64.b64decode(shown["key"]["base64"])) == {"id": 1}
    assert shown["schema"]["name"] == "notes"

    assert place.dlq("replay", "--sink", "lettersearch", "--dry-run")["dry_run"] is True
    again = place.dlq("replay", "--sink", "lettersearch", code=1)
    assert (again["letters"], again["done"]) == (2, 0)
    assert len(place.waiting("lettersearch")) == 2

    deeper = {"properties": {"doc": {"type": "flattened", "depth_limit": 500, "ignore_above": 8191}}}
    url = f"{place.stack.endpoints.elasticsearch_url}/{place.alias}/_mapping"
    httpx.put(url, json=deeper, timeout=WAIT_S).raise_for_status()
    # Only one is named; the other goes with it, for they are of one row.
    assert place.dlq("replay", str(second["number"])) == {"letters": 2, "done": 2, "refused": {}}
    healed = place.document(1)
    assert healed is not None
    assert (healed["title"], healed["big"]) == ("later", fresh)
    settle(place.context)
    assert place.waiting("lettersearch") == []


def test_a_newer_change_of_the_row_makes_a_letter_needless(place: Place) -> None:
    settle(place.context)
    place.cache.lpush("letters:notes:10", "a stranger's")
    place.database.run("INSERT INTO notes VALUES (10, 'n10', '{}', 'small')")
    until(lambda: len(place.waiting("lettercache")) == 1)
    assert place.waiting("lettercache")[0]["code"] == "REDIS_KEY_TAKEN"
    until(lambda: place.document(10) is not None)
    place.cache.delete("letters:notes:10")
    place.database.run("UPDATE notes SET title = 'newer' WHERE id = 10")
    until(lambda: place.cached(10).get("title") == "newer")
    settle(place.context)
    letters = place.dlq("list", "--sink", "lettercache", "--state", "all")["letters"]
    assert [letter["state"] for letter in letters] == ["superseded"]
    assert place.dlq("replay", str(letters[0]["number"]))["letters"] == 0


def test_a_poison_record_delays_nobody_and_can_be_given_up(place: Place) -> None:
    settle(place.context)
    producer = Producer({**KafkaAddress.parse(place.context.kafka_bootstrap).librdkafka()})
    poison = b'{"op": "c", "after'
    producer.produce(TOPIC, poison, b"\xff\x00", headers=[("who", b"a stranger")])
    assert producer.flush(WAIT_S) == 0
    place.database.run("INSERT INTO notes VALUES (20, 'n20', '{}', 'small')")
    until(lambda: place.cached(20) != {})
    until(lambda: len(place.dlq("list")["letters"]) == 2)
    (letter,) = place.waiting("lettersearch")
    assert letter["row"] is None
    shown = place.dlq("show", str(letter["number"]))
    assert base64.b64decode(shown["value"]["base64"]) == poison
    assert base64.b64decode(shown["key"]["base64"]) == b"\xff\x00"
    assert shown["headers"][0]["value"]["text"] == "a stranger"
    file = place.context.dead_letters / "lettersearch" / letter["file"]
    with file.open("rb") as stream:
        (stored,) = fastavro.reader(stream)
    assert stored["value"] == poison  # type: ignore[index, call-overload]
    assert not lag.measure(place.context).in_sync
    assert place.dlq("discard", "--code", letter["code"])["discarded"] == 2
    assert place.waiting("lettersearch") == []

    # It may have been a change of any row: that none is wrong is shown by reading them all.
    def behind() -> bool:
        said = place.state("lettersearch")
        return said.state is lag.State.DEGRADED and said.remedy.endswith(
            "headrace resnapshot letters public.notes"
        )

    stays(behind, 3, why=lambda: place.state("lettersearch"))
    runs.resnapshot(place.context, "letters", tables=[TableId("public", "notes")])
    settle(place.context)
    events = {entry.event for entry in _journal(place.context)}
    assert {"replayed", "discarded"} <= events


def test_a_queue_that_cannot_be_written_stops_the_sink_before_anything_is_lost(place: Place) -> None:
    settle(place.context)
    folder = place.context.dead_letters / "lettercache"
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.write_text("where letters would go")
    place.cache.lpush("letters:notes:30", "a stranger's")
    place.database.run("INSERT INTO notes VALUES (30, 'n30', '{}', 'small')")
    until(lambda: place.state("lettercache").state is lag.State.FAILED)
    assert "cannot be set aside" in place.state("lettercache").reason
    until(lambda: place.document(30) is not None)  # the other sink goes on
    folder.unlink()
    aside.rename(folder)
    until(lambda: len(place.waiting("lettercache")) == 1)
    place.cache.delete("letters:notes:30")
    assert place.dlq("replay", "--all")["done"] == 1
    assert place.cached(30)["title"] == "n30"
    settle(place.context)


@pytest.mark.deep
def test_letters_are_replayed_while_their_table_is_read_anew(place: Place) -> None:
    """The run is throttled and then rests, so that letters are replayed when it has read some of its rows."""
    place.database.run("DELETE FROM notes WHERE id >= 40")
    settle(place.context)
    for key in (40, 41):
        place.cache.lpush(f"letters:notes:{key}", "a stranger's")
    place.database.run(
        "INSERT INTO notes VALUES (40, 'n40', '{}', 'small'), (41, 'n41', '{}', 'small')",
        "INSERT INTO notes SELECT i, 'n' || i, '{}', 'small' FROM generate_series(100, 2000) i",
    )
    until(lambda: len(place.waiting("lettercache")) == 2)
    place.cache.delete("letters:notes:40", "letters:notes:41")
    run = runs.start(place.context, "letters", tables=[TableId("public", "notes")], rows_per_second=50)

    def read() -> int:
        now = run_of(Registry(place.context.registry), run.id)
        return sum(now.counts.get("read", {}).values()) if now.phase == "reading" else 0

    until(lambda: read() > 0)
    place.headrace("resnapshot", "pause", run.id)
    place.database.run("UPDATE notes SET title = 'newest' WHERE id = 41")
    done = place.dlq("replay", "--all")
    assert done["refused"] == {}
    assert run_of(Registry(place.context.registry), run.id).phase == "reading"
    place.headrace("resnapshot", "resume", run.id, "--rows-per-second", "10000")
    settle(place.context)
    assert place.waiting("lettercache") == []
    assert (place.cached(40)["title"], place.cached(41)["title"]) == ("n40", "newest")
    document = place.document(41)
    assert document is not None
    assert document["title"] == "newest"


@pytest.mark.deep
def test_rows_that_are_behind_are_read_anew_as_lag_tells(place: Place) -> None:
    settle(place.context)
    place.cache.lpush("letters:notes:50", "a stranger's")
    place.database.run("INSERT INTO notes VALUES (50, 'n50', '{}', 'small')")
    until(lambda: len(place.waiting("lettercache")) == 1)
    until(lambda: place.state("lettercache").state is lag.State.DEGRADED)
    first = "headrace dlq list --sink lettercache"
    assert place.state("lettercache").remedy == f"{first}; or headrace resnapshot letters public.notes"
    # What the first command shows is why: the row's key is taken.
    (letter,) = place.waiting("lettercache")
    assert (letter["row"], letter["code"]) == ("50", "REDIS_KEY_TAKEN")
    place.cache.delete("letters:notes:50")
    carry_out(place.state("lettercache").remedy, place.stack.home.root, place.database.run)
    settle(place.context)
    assert place.waiting("lettercache") == []
    assert place.cached(50)["title"] == "n50"


def test_who_names_no_letters_is_asked_which(place: Place) -> None:
    command = ["dlq", "discard", "--home", str(place.stack.home.root)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert "LETTERS_UNNAMED" in done.output


def _journal(context: Context) -> list[Any]:
    with Registry(context.registry).begin() as session:
        return list(session.scalars(select(JournalEntry)))
