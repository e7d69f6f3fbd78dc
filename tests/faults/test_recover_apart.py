"""A sink whose store does not answer keeps no other from being recovered, nor a source another."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.control import lag, recover, sink, source, tables
from headrace.control.connect import Connect
from headrace.control.kafka import Kafka
from headrace.control.refresh import refresh
from headrace.control.registry import Registry
from headrace.model.errors import StackError
from headrace.model.schema import TableId
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client
from tests.contract.test_broken_wire import through
from tests.support.database import fresh_database
from tests.support.mirror import Mirror, mirrored
from tests.support.patience import WAIT_S
from tests.support.remedy import bare, carry_out, refused
from tests.support.stack import RunningStack
from tests.support.waiting import ended, until
from tests.support.wire import wire

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(500)]

NAME = "apart"
WIRED = "apartwired"


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        NAME,
        "CREATE TABLE things (id int PRIMARY KEY, name text)",
        "INSERT INTO things SELECT i, 'n' || i FROM generate_series(1, 200) i",
        "CREATE TABLE keyed (ids int[] PRIMARY KEY, name text)",
        "INSERT INTO keyed SELECT ARRAY[i], 'k' || i FROM generate_series(1, 20) i",
    ) as made:
        made.settle()
        yield made


def wrong(mirror: Mirror, *, but: str = "") -> list[str]:
    """Return the sinks, all ``but`` one, that do not hold what the database does."""
    wanted = {str(key): {"id": key, "name": name} for key, name in mirror.database.run("TABLE things")}
    return [name for name, rows in mirror.stored("things", but=but).items() if rows != wanted]


def state(mirror: Mirror) -> lag.State:
    return next(one.state for one in lag.measure(mirror.context).sources if one.source == NAME)


def lose_the_slot(mirror: Mirror) -> None:
    """Drop the slot; of three changes that nobody reads a row goes, one is changed, one is new."""
    with Connect(mirror.context.connect_url) as connect:
        connect.stop(f"headrace_{NAME}")
    active = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = 'headrace_{NAME}' AND active"
    until(lambda: not mirror.database.run(active))
    mirror.database.run(
        f"SELECT pg_drop_replication_slot('headrace_{NAME}')",
        "DELETE FROM things WHERE id = (SELECT min(id) FROM things)",
        "UPDATE things SET name = name || '+' WHERE id = (SELECT min(id) FROM things)",
        "INSERT INTO things SELECT max(id) + 1, 'unseen' FROM things",
        "DELETE FROM keyed WHERE ids = (SELECT min(ids) FROM keyed)",
        "INSERT INTO keyed SELECT max(ids) || 1, 'unseen' FROM keyed",
    )
    until(lambda: state(mirror) is lag.State.RESYNC_REQUIRED)


def test_a_store_that_does_not_answer_keeps_no_other_sink_from_being_recovered(mirror: Mirror) -> None:
    url = mirror.stack.endpoints.elasticsearch_url
    at = urlsplit(url)
    with wire(str(at.hostname), int(at.port or 0)) as way:
        settings = {"url": through(url, way.port), "prefix": "wired-"}
        sink.add(mirror.context, WIRED, "elasticsearch", settings=settings, source=NAME)
        try:
            mirror.settle()
            lose_the_slot(mirror)
            way.break_at(b"", 0, times=10**9)
            told = refused(mirror.stack.home.root, "recover", NAME)
            assert told["code"] == "ES_UNREACHABLE"
            assert f"{WIRED} is left: " in told["message"]
            # The others are right at once, those rows included that went unseen, and stream on.
            assert not wrong(mirror, but=WIRED)
            mirror.database.run("INSERT INTO things SELECT max(id) + 1, 'later' FROM things")
            until(lambda: not wrong(mirror, but=WIRED))
            assert state(mirror) is lag.State.RESYNC_REQUIRED
            way.break_at(b"", None, times=0)
            assert wrong(mirror) == [WIRED]
            carry_out(told["hint"], mirror.stack.home.root, mirror.database.run)
            mirror.settle()
            assert not wrong(mirror)
        finally:
            way.break_at(b"", None, times=0)
            sink.remove(mirror.context, WIRED, purge=True)


def test_a_recovery_whose_connect_does_not_answer_leaves_everything_as_it_was(mirror: Mirror) -> None:
    mirror.settle()
    gone = replace(mirror.context, connect_url="http://127.0.0.1:9")
    with pytest.raises(StackError) as caught:
        recover.recover(gone, NAME)
    assert caught.value.code == "CONNECT_UNREACHABLE"
    assert not Registry(mirror.context.registry).source(NAME).gap
    assert not recover.plan(mirror.context, NAME).unfinished
    mirror.database.run("UPDATE things SET name = 'as before' WHERE id = 100")
    mirror.settle()
    assert not wrong(mirror)


def test_a_recovery_keeps_only_commands_of_its_own_source_waiting_and_they_say_so(mirror: Mirror) -> None:
    mirror.settle()
    reading, goes_on, said = threading.Event(), threading.Event(), list[str]()

    def say(line: str) -> None:
        if line.startswith("starting the connector"):
            reading.set()
            goes_on.wait(WAIT_S)

    context = mirror.context
    with fresh_database(mirror.stack.endpoints.postgres_dsn, "apartbeside") as database:
        database.run("CREATE TABLE first (id int PRIMARY KEY)", "CREATE TABLE more (id int PRIMARY KEY)")
        source.add(context, "apartbeside", database.dsn, tables=[TableId("public", "first")])
        recovery = threading.Thread(target=recover.recover, args=(context, NAME), kwargs={"say": say})
        same = threading.Thread(target=refresh, args=(context, NAME), kwargs={"say": said.append})
        try:
            recovery.start()
            assert reading.wait(WAIT_S)
            database.run("INSERT INTO more SELECT generate_series(1, 9)")
            tables.take_in(context, "apartbeside", [TableId("public", "more")])
            topic = "apartbeside.public.more"
            assert Kafka(context.kafka_bootstrap).ends([topic])[topic, 0][1] >= 9
            same.start()
            until(lambda: said)
            assert said[0].startswith(f"{NAME}: waiting for `headrace recover {NAME}` (process ")
        finally:
            goes_on.set()
            ended(recovery)
            source.remove(context, "apartbeside")
        ended(same)
    mirror.settle()
    assert not wrong(mirror)


def remap(mirror: Mirror, table: str) -> None:
    """Put another index in the place of a table's, as somebody does who wants numbers."""
    config = ElasticsearchSink.Config(url=mirror.stack.endpoints.elasticsearch_url)
    alias = f"{NAME}-public-{table}"
    with closing(Client(config)) as client:
        (before,) = client.request("GET", f"/_alias/{alias}").json()
        theirs = {"mappings": {"properties": {"name": {"type": "long"}}}}
        client.request("PUT", f"/{NAME}-theirs", theirs)
        add = {"index": f"{NAME}-theirs", "alias": alias, "is_write_index": True}
        client.request("POST", "/_aliases", {"actions": [{"remove_index": {"index": before}}, {"add": add}]})


def test_a_table_that_no_run_can_read_is_filled_beside_a_target_that_refuses(mirror: Mirror) -> None:
    """Else the recovery would name itself for ever: it is what is told for such a table."""
    mirror.settle()
    remap(mirror, "keyed")
    lose_the_slot(mirror)
    words = ["recover", NAME, "--json", "--home", str(mirror.stack.home.root)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    (left,) = json.loads(bare(done.output.splitlines()[-1]))["left_out"]
    assert (left["sink"], left["table"], left["code"]) == (
        f"{NAME}search", "public.keyed", "ES_MAPPING_CONFLICT"
    )  # fmt: skip
    assert left["remedy"].startswith("headrace resnapshot wait ")
    carry_out(left["remedy"], mirror.stack.home.root, mirror.database.run)
    mirror.database.run("UPDATE keyed SET name = 'later' WHERE ids = ARRAY[7]")
    mirror.settle()
    assert not wrong(mirror)
    wanted = sorted(name for (name,) in mirror.database.run("SELECT name FROM keyed"))
    for sink_name, rows in mirror.stored("keyed").items():
        assert sorted(row["name"] for row in rows.values()) == wanted, sink_name
