"""The word of a source and of a table is that of the worst fact, whatever else is the case beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from connectors.base import Wait, Weakness
from headrace.control.connect import ConnectorState
from headrace.control.lag import State, judge
from headrace.control.observation import Silence, SinkSeen, SourceSeen
from headrace.control.registry import SourceEntry
from headrace.control.verdicts import ORDER, RESTARTED
from headrace.model.schema import TableId
from tests.support.observed import NOW, SINK, SOURCE, TOPIC, observed_source, verdict

TABLE = TableId("public", "orders")
LATER = 3_600_000
Seen = tuple[SourceSeen, SinkSeen]


@dataclass(frozen=True)
class Fact:
    """Something that is the case: its word when it is alone, words of its reason, and how it is seen."""

    state: State
    said: str
    put: Callable[[SourceSeen, SinkSeen], Seen]

    def __repr__(self) -> str:
        return f"{self.state.value}: {self.said}"


def _source(word: State, said: str, /, **changes: Any) -> Fact:
    return Fact(word, said, lambda source, sink: (replace(source, **changes), sink))


def _hold(word: State, said: str, /, **changes: Any) -> Fact:
    def put(source: SourceSeen, sink: SinkSeen) -> Seen:
        assert source.hold is not None
        return replace(source, hold=replace(source.hold, **changes)), sink

    return Fact(word, said, put)


def _sink(word: State, said: str, /, **changes: Any) -> Fact:
    return Fact(word, said, lambda source, sink: (source, replace(sink, **changes)))


def _progress(word: State, said: str, /, **changes: Any) -> Fact:
    def put(source: SourceSeen, sink: SinkSeen) -> Seen:
        assert sink.progress is not None
        return source, replace(sink, progress=replace(sink.progress, **changes))

    return Fact(word, said, put)


def _counters(word: State, said: str, /, **changes: Any) -> Fact:
    def put(source: SourceSeen, sink: SinkSeen) -> Seen:
        assert sink.progress is not None
        known = sink.progress.tables[str(TABLE)]
        drift = {**(known.drift or {}), **changes.get("drift", {})}
        counters = replace(known, **{**changes, "drift": drift or None})
        return source, replace(sink, progress=replace(sink.progress, tables={str(TABLE): counters}))

    return Fact(word, said, put)


def _stands(state: State, said: str, code: str = "TYPE") -> Fact:
    def put(source: SourceSeen, sink: SinkSeen) -> Seen:
        found = verdict(state=state.value, reason=said, code=code)
        return replace(source, verdicts=(*source.verdicts, found)), sink

    return Fact(state, said, put)


def _elsewhere() -> SourceEntry:
    entry = observed_source()
    entry.timeline = 1
    return entry


def _trouble(state: State, said: str) -> Fact:
    return _counters(state, said, trouble={"state": state.value, "message": said, "hint": "do this"})


# Of each group at most one is the case.
OF_SOURCE: Sequence[Sequence[Fact]] = (
    [_source(State.RESYNC_REQUIRED, "the slot is gone", gap="the slot is gone")],
    [
        _source(State.FAILED, "boom", connector=ConnectorState("RUNNING", "FAILED", "boom")),
        _source(State.FAILED, "lost the connector", connector=ConnectorState("ABSENT", "ABSENT", "")),
        _source(State.PAUSED, "source is paused", connector=ConnectorState("PAUSED", "PAUSED", "")),
        _source(State.DEGRADED, "unassigned", connector=ConnectorState("RUNNING", "UNASSIGNED", "")),
    ],
    [_source(State.DEGRADED, "no Connect", silent=(Silence("no Connect", "start it"),))],
    [_hold(State.SETUP, "waits for process 7", waits=(Wait("process 7", "end it"),))],
    [
        _source(State.SNAPSHOTTING, "initial snapshot", loaded=False),
        _source(State.DEGRADED, "begun 6 times", loaded=False, attempts=6),
    ],
    [
        Fact(
            State.DEGRADED,
            "another server",
            lambda source, sink: (
                replace(source, entry=_elsewhere(), hold=source.hold and replace(source.hold, timeline=2)),
                sink,
            ),
        )
    ],
    [_source(State.DEGRADED, "clock was set back", beat_ms=NOW + LATER)],
)
UNHEARD: Sequence[Sequence[Fact]] = (
    [
        _hold(State.DEGRADED, "not connected to its slot", active=False),
        _hold(State.DEGRADED, "not connected to its slot", barred=Wait("process 8", "end it")),
    ],
    [_source(State.DEGRADED, "heartbeat", beat_ms=None)],
)
OF_ENGINE: Sequence[Sequence[Fact]] = (
    [
        _sink(State.PAUSED, "the sink is paused", paused=True),
        _sink(State.FAILED, "said nothing", engine="silent"),
        _progress(State.SETUP, "query is starting", state="starting"),
        _progress(State.FAILED, "read only", state="failed", error={"message": "read only"}),
        _progress(State.DEGRADED, "no answer", state="degraded", error={"message": "no answer"}),
    ],
)
OF_TABLE: Sequence[Sequence[Fact]] = (
    [_stands(State.RESYNC_REQUIRED, "rows were rewritten")],
    [_stands(State.FAILED, "another key")],
    [_stands(State.DEGRADED, "rows are hidden")],
    [_stands(State.SNAPSHOTTING, "a run reads")],
    [_source(State.RESYNC_REQUIRED, "made anew", topic_ids={TOPIC: "t2"})],
    [
        _trouble(State.FAILED, "index is gone"),
        _trouble(State.DEGRADED, "index is closed"),
        _trouble(State.CATCHING_UP, "is being refilled"),
    ],
    [_hold(State.FAILED, "publication lacks the table", uncaptured=(TABLE,))],
    [_hold(State.DEGRADED, "identity is gone", weakened={TABLE: Weakness("identity is gone", "ALTER")})],
    [_counters(State.FAILED, "key is (name)", drift={"key": ["name"]})],
    [_counters(State.DEGRADED, "columns added: v", drift={"added": ["v"]})],
    [_counters(State.DEGRADED, "3 rows are behind", behind=3)],
)
FOLLOWS: Sequence[Sequence[Fact]] = (
    [_progress(State.CATCHING_UP, "records to apply", next_offsets={(TOPIC, 0): 10})],
    [_progress(State.DEGRADED, "the store has not told", checked_ms=None)],
)
UNWATCHED = _source(State.DEGRADED, "catalogue was not looked at", unwatched_s=None)


def _of(groups: Sequence[Sequence[Fact]]) -> st.SearchStrategy[list[Fact]]:
    chosen = st.tuples(*(st.none() | st.sampled_from(list(group)) for group in groups))
    return chosen.map(lambda facts: [fact for fact in facts if fact is not None])


def _worst(facts: Sequence[Fact]) -> State:
    return max((fact.state for fact in facts), key=ORDER.index, default=State.STREAMING)


def _is_told(state: State, reason: str, facts: Sequence[Fact]) -> None:
    """Check that it is the worst fact's word, and its reason that comes first."""
    assert state is _worst(facts)
    first = reason.partition("; also:")[0]
    assert not facts or any(fact.said in first for fact in facts if fact.state is state), reason


@given(_of(OF_SOURCE), _of(UNHEARD), _of(OF_ENGINE), _of(OF_TABLE), _of(FOLLOWS), st.booleans())
def test_the_worst_fact_is_the_word_and_what_follows_from_others_is_behind(
    of_source: list[Fact],
    unheard: list[Fact],
    of_engine: list[Fact],
    of_table: list[Fact],
    follows: list[Fact],
    unwatched: bool,
) -> None:
    if any(fact.said == "clock was set back" for fact in of_source):
        unheard = [fact for fact in unheard if fact.said != "heartbeat"]  # there is one
    source, sink = replace(SOURCE, sinks=(SINK.entry,)), SINK
    every = [*of_source, *unheard, *of_engine, *of_table, *follows]
    for fact in [*every, UNWATCHED] if unwatched else every:
        source, sink = fact.put(source, sink)
    report = judge([source], [sink])
    (told,), (table,) = report.sources, report.tables

    of_source = of_source or unheard
    _is_told(told.state, told.reason, of_source)
    facts = [*of_source, *of_engine, *of_table]
    if unwatched and not of_source and not of_engine:
        facts.append(UNWATCHED)
    _is_told(table.state, table.reason, facts or follows)
    assert report.sinks[0].state is table.state
    assert report.in_sync == (table.state is State.STREAMING)
    if table.state not in (State.STREAMING, State.CATCHING_UP) and of_engine:
        assert of_engine[0].said in table.reason


def test_a_paused_sink_whose_table_has_another_key_is_told_as_failed_and_as_paused() -> None:
    source, sink = OF_TABLE[8][0].put(*OF_ENGINE[0][0].put(SOURCE, SINK))
    (table,) = judge([source], [sink]).tables
    assert table.state is State.FAILED
    assert table.remedy.startswith("headrace sink remove") or "source remove" in table.remedy
    assert table.reason.endswith("; also: the sink is paused")


def test_what_an_interrupted_snapshot_may_have_left_is_told_when_the_next_one_has_ended() -> None:
    source, sink = _stands(State.DEGRADED, "it began again", RESTARTED).put(SOURCE, SINK)
    (during,) = judge([replace(source, loaded=False, attempts=2)], [sink]).tables
    assert during.state is State.SNAPSHOTTING
    (after,) = judge([source], [sink]).tables
    assert after.state is State.DEGRADED


def test_a_connector_that_has_not_begun_to_read_is_starting() -> None:
    unassigned = replace(SOURCE, connector=ConnectorState("RUNNING", "ABSENT", ""), loaded=False)
    assert judge([replace(unassigned, attempts=0)], []).sources[0].state is State.SETUP
    assert judge([unassigned], []).sources[0].state is State.DEGRADED
