"""A source whose history has a gap is said to need a recovery, from every such state, and is mended by it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.kafka import KafkaAddress
from headrace.control import lag, recover, sink
from headrace.control.connect import Connect
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry
from headrace.control.runs import start as runs
from headrace.control.runs.passed import reread
from headrace.control.runs.repository import run_of
from headrace.model.errors import SourceError, StackError
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client
from tests.support.mirror import KINDS, Mirror, mirrored
from tests.support.patience import WAIT_S
from tests.support.remedy import bare, steps
from tests.support.stack import RunningStack
from tests.support.waiting import elapse, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(500)]

Break = Callable[[Mirror], None]
TOPIC = "mend.public.things"


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        "mend",
        "CREATE TABLE things (id int PRIMARY KEY, name text)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "INSERT INTO things SELECT i, 'n' || i FROM generate_series(1, 200) i",
        "INSERT INTO others SELECT generate_series(1, 20)",
    ) as made:
        until(lambda: made.in_sync, 300.0)
        yield made


def assert_equal(mirror: Mirror, *, but: str = "") -> None:
    wanted = {str(key): {"id": key, "name": name} for key, name in mirror.database.run("TABLE things")}
    for name, rows in mirror.stored("things", but=but).items():
        assert rows == wanted, name
    others = {str(key) for (key,) in mirror.database.run("TABLE others")}
    assert all(rows.keys() == others for rows in mirror.stored("others").values())


def stopped(mirror: Mirror) -> None:
    with Connect(mirror.context.connect_url) as connect:
        connect.stop("headrace_mend")
    until_nobody_reads(mirror)


def until_nobody_reads(mirror: Mirror) -> None:
    active = "SELECT active FROM pg_replication_slots WHERE slot_name ~ 'mend'"
    until(lambda: not mirror.database.value(active))


def written_unseen(mirror: Mirror) -> None:
    """Change three rows: one goes, one is changed, one is new."""
    mirror.database.run(
        "DELETE FROM things WHERE id = (SELECT min(id) FROM things)",
        "UPDATE things SET name = name || '+' WHERE id = (SELECT min(id) FROM things)",
        "INSERT INTO things SELECT max(id) + 1, 'unseen' FROM things",
    )


def slot_dropped(mirror: Mirror) -> None:
    stopped(mirror)
    mirror.database.run("SELECT pg_drop_replication_slot('headrace_mend')")
    written_unseen(mirror)


def slot_advanced(mirror: Mirror) -> None:
    stopped(mirror)
    written_unseen(mirror)
    mirror.database.run("SELECT pg_replication_slot_advance('headrace_mend', pg_current_wal_lsn())")


OTHERS_BEHIND = """
    SELECT pg_log_standby_snapshot(), count(*) FROM pg_replication_slots
    WHERE slot_name <> 'headrace_mend' AND restart_lsn < '{}'
"""


def until_others_follow(mirror: Mirror) -> None:
    """Wait until no slot but ours needs what was written before; else it would be invalidated with ours."""
    behind = OTHERS_BEHIND.format(mirror.database.value("SELECT pg_current_wal_lsn()"))
    until(lambda: not mirror.database.run(behind)[0][1])


def slot_invalidated(mirror: Mirror) -> None:
    stopped(mirror)
    written_unseen(mirror)
    mirror.database.run("ALTER SYSTEM SET max_slot_wal_keep_size = '32MB'", "SELECT pg_reload_conf()")
    try:
        for _ in range(5):
            mirror.database.run("SELECT pg_logical_emit_message(false, 'x', 'y')", "SELECT pg_switch_wal()")
            until_others_follow(mirror)
            mirror.database.run("CHECKPOINT")
    finally:
        mirror.database.run("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")


def slot_idle(mirror: Mirror) -> None:
    """P12: the server gives up a slot that nobody reads from; another one's is in use."""
    stopped(mirror)
    written_unseen(mirror)
    mirror.database.run("ALTER SYSTEM SET idle_replication_slot_timeout = '1s'", "SELECT pg_reload_conf()")
    reason = "SELECT invalidation_reason FROM pg_replication_slots WHERE slot_name = 'headrace_mend'"

    def given_up() -> bool:
        mirror.database.run("CHECKPOINT")
        return bool(mirror.database.value(reason) == "idle_timeout")

    try:
        until(given_up)
    finally:
        mirror.database.run("ALTER SYSTEM RESET idle_replication_slot_timeout", "SELECT pg_reload_conf()")


def positions_lost(mirror: Mirror) -> None:
    stopped(mirror)
    written_unseen(mirror)
    url = f"{mirror.context.connect_url}/connectors/headrace_mend/offsets"
    until(lambda: httpx.delete(url).status_code == httpx.codes.OK)


def connector_lost(mirror: Mirror) -> None:
    httpx.delete(f"{mirror.context.connect_url}/connectors/headrace_mend").raise_for_status()
    until_nobody_reads(mirror)
    written_unseen(mirror)


def topic_deleted(mirror: Mirror) -> None:
    Kafka(mirror.context.kafka_bootstrap).delete([TOPIC])
    written_unseen(mirror)


def topic_trimmed(mirror: Mirror) -> None:
    mirror.pause(*KINDS)
    kafka = Kafka(mirror.context.kafka_bootstrap)
    before = kafka.ends([TOPIC])[TOPIC, 0][1]
    written_unseen(mirror)
    until(lambda: kafka.ends([TOPIC])[TOPIC, 0][1] >= before + 3)
    end = kafka.ends([TOPIC])[TOPIC, 0][1]
    admin = AdminClient(dict(KafkaAddress.parse(mirror.context.kafka_bootstrap).librdkafka()))
    for future in admin.delete_records([TopicPartition(TOPIC, 0, end)]).values():
        future.result(WAIT_S)
    mirror.resume(*KINDS)


def told(mirror: Mirror) -> str:
    """Return the remedy that lag names for the table, as soon as it says that it has to be read anew."""
    remedies: set[str] = set()

    def lost() -> bool:
        seen = [t for t in lag.measure(mirror.context).tables if t.table == "public.things"]
        remedies.clear()
        remedies.update(found.remedy for found in seen)
        return {found.state.value for found in seen} == {"resync_required"} or (
            remedies == {"headrace recover mend"}
        )

    until(lost)
    (remedy,) = remedies
    return remedy


def carried_out(mirror: Mirror, remedy: str) -> dict[str, Any]:
    command = [*steps(remedy)[1], "--json", "--home", str(mirror.stack.home.root)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    said: dict[str, Any] = json.loads(bare(done.output.splitlines()[-1]))
    return said


def broken_and_recovered(mirror: Mirror, breaks: Break) -> None:
    until(lambda: mirror.in_sync)
    breaks(mirror)
    assert not lag.measure(mirror.context).in_sync
    remedy = told(mirror)
    assert remedy == "headrace recover mend"
    said = carried_out(mirror, remedy)
    # Each of three sinks lacked a row, had one of another name and one that is gone.
    assert said["wrong"] == 9, said
    mirror.settle()
    assert_equal(mirror)


def test_a_dropped_slot_is_recovered_while_the_sinks_go_on_serving(mirror: Mirror) -> None:
    until(lambda: mirror.in_sync)
    registry = Registry(mirror.context.registry)
    before = runs.wait(mirror.context, runs.start(mirror.context, "mend", why="kept").id)
    fewest, over = [10**9], threading.Event()

    def count() -> None:
        while not over.is_set():
            fewest[0] = min(fewest[0], *(len(rows) for rows in mirror.stored("things").values()))
            elapse(0.1)

    reader = threading.Thread(target=count)
    reader.start()
    try:
        broken_and_recovered(mirror, slot_dropped)
    finally:
        over.set()
        reader.join()
    assert fewest[0] >= 199
    # What was done before is kept, and counts for nothing any more.
    kept = run_of(registry, before.id)
    assert (kept.phase, kept.counts, kept.ended_ms) == (before.phase, before.counts, before.ended_ms)
    assert reread(registry, "mend") == {}


def test_an_interrupted_recovery_goes_on_and_is_not_green_before(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: mirror.in_sync)
    slot_advanced(mirror)
    assert told(mirror) == "headrace recover mend"
    for step in ("begin_life", "hand_over", "wait_streaming", "sweep"):
        whole = getattr(recover, step)

        def dies(*arguments: Any, _step: Any = whole, **named: Any) -> None:
            _step(*arguments, **named)
            raise StackError("The power is gone.", code="TEST")

        with monkeypatch.context() as patched:
            patched.setattr(recover, step, dies)
            with pytest.raises(StackError):
                recover.recover(mirror.context, "mend")
        (state,) = (s.state for s in lag.measure(mirror.context).sources if s.source == mirror.name)
        assert state is lag.State.RESYNC_REQUIRED
        assert recover.plan(mirror.context, "mend").unfinished
    recover.recover(mirror.context, "mend")
    mirror.settle()
    assert_equal(mirror)


@pytest.mark.parametrize(
    "breaks", [slot_advanced, slot_invalidated, slot_idle, positions_lost, connector_lost, topic_deleted]
)
def test_every_gap_is_recovered_by_the_command_that_lag_names(mirror: Mirror, breaks: Break) -> None:
    broken_and_recovered(mirror, breaks)


def test_what_kafka_lost_of_one_table_is_mended_by_reading_that_table(mirror: Mirror) -> None:
    until(lambda: mirror.in_sync)
    topic_trimmed(mirror)
    remedy = told(mirror)
    assert remedy == "headrace resnapshot mend public.things"
    carried_out(mirror, remedy)
    mirror.settle()
    assert_equal(mirror)


def test_a_connector_that_began_anew_behind_our_back_has_a_gap(mirror: Mirror) -> None:
    """Connect's position is lost and the connector runs again before anybody looks: it tells of no delete."""
    until(lambda: mirror.in_sync)
    positions_lost(mirror)
    with Connect(mirror.context.connect_url) as connect:
        connect.resume("headrace_mend")
        until(lambda: connect.state("headrace_mend").running and bool(connect.offset("headrace_mend")))
    assert not mirror.in_sync
    assert told(mirror) == "headrace recover mend"
    assert carried_out(mirror, "headrace recover mend")["wrong"] >= 3
    mirror.settle()
    assert_equal(mirror)


def lake_table(mirror: Mirror) -> DeltaTable:
    settings = Registry(mirror.context.registry).sink("mendlake").settings
    return DeltaTable(str(Path(settings["path"]) / "public" / "things"))


def rows_changed(mirror: Mirror) -> None:
    lake_table(mirror).update({"name": "'theirs'"}, predicate="id % 2 = 0")


def column_retyped(mirror: Mirror) -> None:
    table = lake_table(mirror)
    rows = pa.table(table.scan())
    place = rows.column_names.index("name")
    rows = rows.set_column(place, "name", pa.array([7] * len(rows), pa.int64()))
    write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite")


def files_lost(mirror: Mirror) -> None:
    for file in lake_table(mirror).file_uris():
        Path(file).unlink()


def index_remapped(mirror: Mirror) -> None:
    config = ElasticsearchSink.Config(url=mirror.stack.endpoints.elasticsearch_url)
    with closing(Client(config)) as client:
        alias = "mend-public-things"
        (before,) = client.request("GET", f"/_alias/{alias}").json()
        theirs = {"mappings": {"properties": {"name": {"type": "long"}}}}
        client.request("PUT", "/mend-theirs", theirs)
        add = {"index": "mend-theirs", "alias": alias, "is_write_index": True}
        client.request("POST", "/_aliases", {"actions": [{"remove_index": {"index": before}}, {"add": add}]})


def until_a_gap_is_seen(mirror: Mirror) -> None:
    def seen() -> bool:
        sources = {found.source: found.state for found in lag.measure(mirror.context).sources}
        return sources[mirror.name] is lag.State.RESYNC_REQUIRED

    until(seen)


def test_rows_of_a_lake_that_somebody_else_has_changed_are_recovered_as_well(mirror: Mirror) -> None:
    until(lambda: mirror.in_sync)
    rows_changed(mirror)
    slot_dropped(mirror)
    until_a_gap_is_seen(mirror)
    said = carried_out(mirror, "headrace recover mend")
    assert said["left_out"] == []
    assert said["wrong"] > 100, said
    mirror.settle()
    assert_equal(mirror)


@pytest.mark.parametrize(
    ("breaks", "sink"),
    [(column_retyped, "mendlake"), (files_lost, "mendlake"), (index_remapped, "mendsearch")],
)
def test_one_table_s_broken_target_is_left_out_and_everything_else_is_recovered(
    mirror: Mirror, breaks: Break, sink: str
) -> None:
    until(lambda: mirror.in_sync)
    breaks(mirror)
    slot_dropped(mirror)
    until_a_gap_is_seen(mirror)
    (left,) = carried_out(mirror, "headrace recover mend")["left_out"]
    assert (left["sink"], left["table"]) == (sink, "public.things")
    mirror.database.run("UPDATE things SET name = name || '!' WHERE id % 3 = 0")

    def others_in_sync() -> bool:
        others = [t for t in lag.measure(mirror.context).tables if (t.sink, t.table) != (sink, left["table"])]
        return {t.state for t in others} == {lag.State.STREAMING} and not any(t.lag_records for t in others)

    until(others_in_sync, why=lambda: lag.measure(mirror.context).tables)
    assert_equal(mirror, but=sink)
    (word,) = (t for t in lag.measure(mirror.context).tables if (t.sink, t.table) == (sink, left["table"]))
    assert (word.state, word.remedy) == (lag.State.RESYNC_REQUIRED, left["remedy"])
    assert not mirror.in_sync
    carried_out(mirror, left["remedy"])
    mirror.settle()
    assert_equal(mirror)
    assert not mirror.letters


def test_a_sink_that_is_added_while_the_source_is_recovered_is_added_afterwards(mirror: Mirror) -> None:
    """Its topics are made anew between its targets and its query."""
    until(lambda: mirror.in_sync)
    name, settings = "mendlate", {"url": mirror.stack.endpoints.redis_url, "key_prefix": "late:"}

    def say(line: str) -> None:
        if line.startswith("creating"):
            recover.recover(mirror.context, "mend")

    with pytest.raises(SourceError) as caught:
        sink.add(mirror.context, name, "redis", settings=settings, source="mend", say=say)
    assert caught.value.code == "SOURCE_RECOVERED"
    assert caught.value.hint.startswith("Run the same command again once `headrace lag` shows")
    mirror.settle()
    sink.add(mirror.context, name, "redis", settings=settings, source="mend")
    try:
        written_unseen(mirror)
        mirror.settle()
        assert_equal(mirror)
    finally:
        sink.remove(mirror.context, name, purge=True)
