"""Lag is judged from observations alone: what was seen decides the word, and nothing unseen is green."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import Wait
from headrace.control.connect import ConnectorState
from headrace.control.lag import LagReport, State, TableLag, judge
from headrace.control.observation import Next, Silence, SinkSeen, SourceSeen
from headrace.control.progress import TableProgress
from headrace.control.registry import SinkEntry
from headrace.model.finding import Finding
from headrace.model.schema import TableId
from tests.support.observed import NOW, PROGRESS, SINK, SOURCE, TOPIC, hold, observed_source, verdict

FAILED = ConnectorState("RUNNING", "FAILED", "boom")
ABSENT = ConnectorState("ABSENT", "ABSENT", "")
UNASSIGNED = ConnectorState("RUNNING", "UNASSIGNED", "")


def _report(source: SourceSeen = SOURCE, sink: SinkSeen = SINK) -> LagReport:
    return judge([source], [sink])


def _one(source: SourceSeen = SOURCE, sink: SinkSeen = SINK) -> TableLag:
    (table,) = _report(source, sink).tables
    return table


def test_all_settled_and_a_fresh_heartbeat_is_in_sync() -> None:
    report = _report()
    assert report.in_sync
    assert report.tables[0].state is State.STREAMING
    assert report.tables[0].freshness_seconds == pytest.approx(0.5)
    assert report.sources[0].slot_lag_bytes == 100
    assert report.in_sync_age_seconds == pytest.approx(0.5)
    assert (report.shows(0.4), report.shows(0.6)) == (False, True)


@pytest.mark.parametrize("age", [None, 30.0, -30.0])
def test_a_source_whose_catalogue_nobody_looks_at_is_not_green(age: float | None) -> None:
    report = _report(replace(SOURCE, unwatched_s=age))
    assert not report.in_sync
    assert not report.shows(1_000.0)
    assert report.tables[0].state is State.DEGRADED
    assert "catalogue was not looked at" in report.tables[0].reason


@pytest.mark.parametrize(("age", "took", "so"), [(5.9, 0.0, True), (6.1, 0.0, False), (8.9, 3.0, True)])
def test_a_look_at_the_catalogue_that_is_overdue_proves_nothing(age: float, took: float, so: bool) -> None:
    """The heartbeat's interval and two seconds, the time between two looks, and what a look takes."""
    report = _report(replace(SOURCE, unwatched_s=age, look_s=took))
    assert (report.in_sync, report.tables[0].state) == (so, State.STREAMING)


def test_a_new_table_is_a_note_with_its_two_commands_and_changes_no_state() -> None:
    report = _report(replace(SOURCE, newcomers=(TableId("public", "new one"), TableId("public", "b"))))
    assert report.in_sync
    (note,) = report.sources[0].notes
    assert note.tables == ("public.new one", "public.b")
    assert note.remedy == "headrace source tables add shop 'public.new one' public.b"
    assert note.decline == "headrace source tables decline shop 'public.new one' public.b"
    assert _report().sources[0].notes == ()


def test_what_makes_the_application_wait_is_a_note_with_what_ends_it_and_changes_no_state() -> None:
    assert SOURCE.hold is not None
    harm = Finding.error("SOURCE_SYNCHRONOUS", "commits wait", "ALTER SYSTEM …;")
    report = _report(replace(SOURCE, hold=replace(SOURCE.hold, harms=(harm,))))
    assert report.in_sync
    (note,) = report.sources[0].notes
    assert (note.code, note.remedy, note.decline) == ("SOURCE_SYNCHRONOUS", "ALTER SYSTEM …;", "")


def test_a_table_whose_first_rows_are_being_read_is_not_in_sync() -> None:
    loading = verdict(state="snapshotting", code="TABLE_FIRST_LOAD")
    report = _report(replace(SOURCE, verdicts=(loading,)))
    assert (report.in_sync, report.tables[0].state) == (False, State.SNAPSHOTTING)


def test_an_installation_without_sinks_is_never_in_sync() -> None:
    assert not judge([SOURCE], []).in_sync
    assert not judge([], []).in_sync


def test_unsettled_records_are_not_in_sync_and_freshness_is_that_of_the_first_of_them() -> None:
    behind = replace(SINK, progress=replace(PROGRESS, next_offsets={(TOPIC, 0): 900}))
    known = replace(behind, following={TOPIC: Next(NOW - 4_000, snapshot=False)})
    table = _one(sink=known)
    assert table.lag_records == 100
    assert table.freshness_seconds == pytest.approx(4.0)
    assert table.state is State.STREAMING
    assert not _report(sink=known).in_sync


def test_a_row_read_by_a_snapshot_proves_nothing_about_freshness() -> None:
    behind = replace(
        SINK,
        progress=replace(PROGRESS, next_offsets={(TOPIC, 0): 900}),
        following={TOPIC: Next(NOW - 1_000, snapshot=True)},
    )
    table = _one(sink=behind)
    assert table.freshness_seconds == pytest.approx(60.0)
    assert table.state is State.CATCHING_UP


def test_of_several_partitions_one_that_begins_with_a_snapshots_row_leaves_nothing_proven() -> None:
    """The newest change that was applied may be of another partition, and younger than one that waits."""
    source = replace(SOURCE, ends={**(SOURCE.ends or {}), (TOPIC, 1): (0, 10)})
    behind = replace(
        SINK,
        progress=replace(PROGRESS, next_offsets={(TOPIC, 0): 900, (TOPIC, 1): 10}),
        following={TOPIC: Next(NOW - 1_000, snapshot=True)},
    )
    assert _one(source, behind).freshness_seconds is None


def test_a_query_that_a_command_has_rest_is_not_told_to_be_resumed() -> None:
    table = _one(sink=replace(SINK, withheld=True, progress=replace(PROGRESS, state="paused")))
    assert (table.state, table.remedy) == (State.PAUSED, "")


def test_a_sink_that_has_read_further_than_the_ends_looked_at_before_is_not_behind() -> None:
    further = replace(SINK, progress=replace(PROGRESS, next_offsets={(TOPIC, 0): 1010}))
    assert _one(sink=further).lag_records == 0
    assert _report(sink=further).in_sync


def test_a_sink_that_has_read_further_than_the_ends_looked_at_afterwards_shows_that_kafka_went_back() -> None:
    progress = replace(PROGRESS, next_offsets={(TOPIC, 0): 1010})
    found = _one(sink=replace(SINK, progress=progress, beyond={(TOPIC, 0): (1010, 1005)}))
    assert found.state is State.RESYNC_REQUIRED
    assert "ends at 1005" in found.reason
    assert "up to 1010" in found.reason


def test_a_sink_that_reads_a_topic_as_another_incarnation_is_not_in_sync() -> None:
    found = _one(sink=replace(SINK, other_lives=frozenset({TOPIC})))
    assert (found.state, found.remedy) == (State.RESYNC_REQUIRED, "headrace recover shop")


@pytest.mark.parametrize("beat", [NOW - 3_100, NOW - 9_000, NOW + 1_100, NOW + 3_600_000])
def test_without_a_young_heartbeat_nothing_is_in_sync(beat: int) -> None:
    assert not _report(replace(SOURCE, beat_ms=beat)).in_sync


def test_a_clock_that_was_set_back_is_told() -> None:
    found = _one(replace(SOURCE, beat_ms=NOW + 3_600_000))
    assert found.state is State.DEGRADED
    assert "clock was set back" in found.reason
    assert _report(replace(SOURCE, beat_ms=NOW + 600)).in_sync  # the database's clock and ours


@pytest.mark.parametrize("checked", [None, NOW - 3_100, NOW + 3_600_000])
def test_without_a_young_look_at_the_store_nothing_is_in_sync(checked: int | None) -> None:
    assert not _report(sink=replace(SINK, progress=replace(PROGRESS, checked_ms=checked))).in_sync


def test_a_store_that_does_not_tell_what_it_holds_is_degraded() -> None:
    found = _one(sink=replace(SINK, progress=replace(PROGRESS, checked_ms=NOW - 11_000)))
    assert found.state is State.DEGRADED
    assert "for 11 s" in found.reason


@pytest.mark.parametrize(
    ("checked", "applying", "state"),
    [
        (None, NOW - 9_000, State.CATCHING_UP),
        (NOW - 11_000, NOW - 9_000, State.CATCHING_UP),
        (NOW - 119_000, NOW - 118_000, State.CATCHING_UP),
        (NOW - 122_000, NOW - 121_000, State.DEGRADED),
        (NOW - 11_000, None, State.DEGRADED),
        (NOW + 3_600_000, NOW - 9_000, State.DEGRADED),
    ],
)
def test_a_store_that_takes_many_records_is_asked_later(
    checked: int | None, applying: int | None, state: State
) -> None:
    sink = replace(SINK, progress=replace(PROGRESS, checked_ms=checked, applying_since_ms=applying))
    assert _one(sink=sink).state is state
    assert not _report(sink=sink).in_sync


def test_trouble_of_one_table_is_the_word_of_that_table_only() -> None:
    trouble = {
        "code": "ES_INDEX_MISSING",
        "state": "failed",
        "message": "the index is gone",
        "hint": "do this",
        "since_ms": NOW,
    }
    counters = {"public.orders": TableProgress(trouble=trouble), "public.other": TableProgress()}
    found = _one(sink=replace(SINK, progress=replace(PROGRESS, tables=counters)))
    assert (found.state, found.reason, found.remedy) == (State.FAILED, "the index is gone", "do this")
    counters = {"public.orders": TableProgress(), "public.other": TableProgress(trouble=trouble)}
    assert _report(sink=replace(SINK, progress=replace(PROGRESS, tables=counters))).in_sync


def _silence(reason: str) -> Silence:
    return Silence(reason, "mend it")


@pytest.mark.parametrize(
    ("source", "state", "said"),
    [
        (replace(SOURCE, gap="the slot does not exist"), State.RESYNC_REQUIRED, "slot does not exist"),
        (replace(SOURCE, topic_ids={TOPIC: "t2"}), State.RESYNC_REQUIRED, "made anew"),
        (replace(SOURCE, topic_ids={}), State.RESYNC_REQUIRED, "is gone"),
        (replace(SOURCE, ends={(TOPIC, 0): (1001, 1200)}), State.RESYNC_REQUIRED, "no longer holds offsets"),
        (replace(SOURCE, connector=FAILED), State.FAILED, "boom"),
        (replace(SOURCE, connector=ABSENT), State.FAILED, "lost the connector"),
        (replace(SOURCE, connector=ConnectorState("PAUSED", "PAUSED", "")), State.PAUSED, "paused"),
        (replace(SOURCE, connector=None, silent=(_silence("no Connect"),)), State.DEGRADED, "no Connect"),
        (replace(SOURCE, hold=None, silent=(_silence("the database refuses"),)), State.DEGRADED, "database"),
        (replace(SOURCE, ends=None, topic_ids=None, beat_ms=None, silent=(_silence("Kafka is away"),)),
         State.DEGRADED, "Kafka"),
        (replace(SOURCE, loaded=False), State.SNAPSHOTTING, "initial snapshot"),
        (replace(SOURCE, loaded=False, attempts=2), State.SNAPSHOTTING, "for the 2. time"),
        (replace(SOURCE, loaded=False, attempts=6), State.DEGRADED, "begun 6 times"),
        (replace(SOURCE, connector=UNASSIGNED), State.DEGRADED, "unassigned"),
        (replace(SOURCE, hold=hold(active=False)), State.DEGRADED, "not connected to its slot"),
        (replace(SOURCE, beat_ms=NOW - 11_000), State.DEGRADED, "heartbeat is 11 s old"),
        (replace(SOURCE, beat_ms=None), State.DEGRADED, "no heartbeat"),
    ],
)  # fmt: skip
def test_trouble_of_the_source_is_never_green(source: SourceSeen, state: State, said: str) -> None:
    table = _one(source=source)
    assert table.state is state
    assert said in table.reason
    assert not _report(source=source).in_sync


def test_who_keeps_the_connector_from_its_slot_is_told_with_since_when_and_what_ends_it() -> None:
    other = Wait("process 7 (reader) reads from it", "end it")
    full = replace(SOURCE, hold=hold(active=False, barred=other), beat_ms=NOW - 90_000)
    taken = replace(SOURCE, hold=hold(barred=other), beat_ms=NOW - 90_000)
    for source in (full, taken):
        (found,) = _report(source=source).sources
        assert (found.state, found.remedy) == (State.DEGRADED, "end it")
        assert other.who in found.reason
        assert "90 s" in found.reason
    (found,) = _report(source=replace(full, hold=hold(active=False))).sources
    assert "90 s" in found.reason
    assert "Connect's log" in found.reason
    assert not found.remedy


@pytest.mark.parametrize(
    ("sink", "state", "said"),
    [
        (replace(SINK, progress=None), State.SETUP, "not taken it up"),
        (replace(SINK, progress=None, engine="stopped"), State.FAILED, "said nothing"),
        (replace(SINK, progress=replace(PROGRESS, updated_ms=NOW - 10_500)), State.FAILED, "for 10 s"),
        (replace(SINK, progress=replace(PROGRESS, updated_ms=NOW + 60_000, checked_ms=NOW + 60_000)),
         State.FAILED, "nothing since the clock was set back"),
        (replace(SINK, progress=replace(PROGRESS, checked_ms=NOW + 5_000)),
         State.DEGRADED, "since the clock was set back"),
        (replace(SINK, engine="silent"), State.FAILED, "said nothing"),
        (replace(SINK, engine="starting", progress=replace(PROGRESS, updated_ms=NOW - 99_000)),
         State.SETUP, "engine is starting"),
        (replace(SINK, paused=True), State.PAUSED, "paused"),
        (replace(SINK, progress=replace(PROGRESS, state="starting")), State.SETUP, "starting"),
        (replace(SINK, progress=replace(PROGRESS, state="degraded", error={"message": "no answer"})),
         State.DEGRADED, "no answer"),
        (replace(SINK, progress=replace(PROGRESS, state="failed", error={"message": "read only"})),
         State.FAILED, "read only"),
        (replace(SINK, progress=replace(PROGRESS, tables={"public.orders": TableProgress(behind=1)})),
         State.DEGRADED, "1 row is behind"),
    ],
)  # fmt: skip
def test_trouble_of_the_sink_is_never_green(sink: SinkSeen, state: State, said: str) -> None:
    table = _one(sink=sink)
    assert table.state is state
    assert said in table.reason
    report = _report(sink=sink)
    assert report.sinks[0].state is state
    assert not report.in_sync


def test_a_sink_that_could_not_load_from_the_beginning_is_not_green() -> None:
    entry = SinkEntry(
        name="search",
        kind="elasticsearch",
        source="shop",
        settings={},
        tables={TOPIC: {}},
        incomplete={TOPIC: 40},
        on_schema_change="lenient",
        created_ms=NOW,
    )
    table = _one(sink=replace(SINK, entry=entry))
    assert table.state is State.RESYNC_REQUIRED
    assert table.remedy == "headrace resnapshot shop public.orders"


def test_a_source_whose_name_another_database_s_slot_has_is_to_be_added_under_another() -> None:
    """A recovery cannot help, and what reads from that slot is to go on."""
    source = replace(SOURCE, gap="the slot is that of database staging", sinks=[SINK.entry])
    assert _one(source).remedy == "headrace recover shop"
    source = replace(source, hold=replace(hold(), elsewhere="database staging"))
    assert _one(source).remedy == (
        f"headrace sink remove {SINK.entry.name} && headrace source remove shop"
        "  # then add it again under another name"
    )


def test_before_the_first_snapshot_a_missing_slot_is_no_loss() -> None:
    fresh = replace(
        SOURCE, loaded=False, hold=hold(exists=False, active=False, lost="the slot does not exist")
    )
    assert _one(source=fresh).state is State.SNAPSHOTTING
    assert _one(source=fresh).freshness_seconds is None


def test_the_report_is_ready_for_json() -> None:
    value = _report().as_dict()
    assert value["in_sync"] is True
    assert value["tables"][0]["state"] == "streaming"
    assert value["sinks"][0]["latency_ms"]["p50"] == 150


def test_a_verdict_that_stands_is_the_table_s_word() -> None:
    found = _one(replace(SOURCE, verdicts=(verdict(),)))
    assert (found.state, found.remedy) == (State.RESYNC_REQUIRED, "headrace resnapshot shop public.orders")
    assert not _report(replace(SOURCE, verdicts=(verdict(state="degraded"),))).in_sync
    assert _one(replace(SOURCE, verdicts=(verdict(sink="other"),))).state is State.STREAMING
    assert _one(replace(SOURCE, verdicts=(verdict(healed={"search": NOW}),))).state is State.STREAMING


def test_what_is_wrong_with_a_table_that_no_sink_has_yet_is_the_source_s_word() -> None:
    seen = replace(SOURCE, verdicts=(verdict(code="FIRST_LOAD_UNARRIVED"), verdict(state="degraded")))
    (said,) = judge([seen], []).sources
    assert (said.state, said.remedy) == (State.RESYNC_REQUIRED, "headrace resnapshot shop public.orders")
    assert said.reason == "public.orders: the type of amount has changed"
    (said,) = judge([replace(seen, sinks=(SINK.entry,))], [SINK]).sources
    assert said.state is State.STREAMING


@pytest.mark.parametrize(("held", "spare", "said"), [(9, 1, True), (9, 4, False), (9, None, False)])
def test_a_slot_that_nears_its_end_is_told(held: int, spare: int | None, said: bool) -> None:
    report = _report(replace(SOURCE, hold=hold(held_bytes=held << 20, spare_bytes=spare and spare << 20)))
    assert report.sources[0].state is State.STREAMING
    assert ("the slot is lost when 1 MiB more" in report.sources[0].reason) == said
    assert report.in_sync
    away = hold(held_bytes=held << 20, spare_bytes=spare and spare << 20, active=False)
    assert ("the slot is lost when" in _report(replace(SOURCE, hold=away)).sources[0].reason) == said


@pytest.mark.parametrize(("kept_s", "said"), [(100, True), (1000, False), (-0.001, False)])
def test_a_sink_that_kafka_will_not_wait_for_is_told_in_time(kept_s: float, said: bool) -> None:
    entry = observed_source()
    entry.settings = {**entry.settings, "retention_ms": int(kept_s * 1000)}
    paused = replace(SINK, paused=True, progress=replace(PROGRESS, next_offsets={(TOPIC, 0): 900}))
    paused = replace(paused, following={TOPIC: Next(NOW - 90_000, snapshot=False)})
    found = _one(replace(SOURCE, entry=entry), paused)
    assert found.state is State.PAUSED
    assert ("Kafka forgets the oldest change that is not applied in 0 min" in found.reason) == said
