"""A run while somebody waits for it: how far, how fast, how long it will take."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from headrace.cli.run_bar import shown
from headrace.control.registry import ResnapshotEntry
from headrace.control.runs.words import Words, in_words


class Clock:
    """Seconds that go by when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def run(phase: str = "reading", read: int = 0, estimate: int = 0, **more: str) -> ResnapshotEntry:
    return ResnapshotEntry(
        id="3f2a",
        source="shop",
        phase=phase,
        begun_ms=1,
        plan={"estimate": estimate},
        counts={"read": {"shop.public.orders": read}} if read else {},
        wanted=more.get("wanted", ""),
        reason=more.get("reason", ""),
    )


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (run("queued", reason="waits for run 77"), "run 3f2a: queued; waits for run 77"),
        (run(), "run 3f2a: reading"),
        (run(read=5_000, estimate=20_000),
         "run 3f2a: reading; about 5,000 rows, 400 rows/s, about 38 s left"),
        (run(read=5_000, estimate=4_000), "run 3f2a: reading; about 5,000 rows, 400 rows/s"),
        (run(read=1_000, estimate=4_000), "run 3f2a: reading; about 1,000 rows"),
        (run(read=5_000, wanted="pause"), "run 3f2a: paused while reading; about 5,000 rows"),
        (run("applying", read=5_000), "run 3f2a: applying"),
    ],
)  # fmt: skip
def test_a_run_in_words(seen: ResnapshotEntry, words: str) -> None:
    clock = Clock()
    said = Words(clock)
    said.of(run(read=1_000))
    clock.now += 10
    assert said.of(seen) == words


def test_what_sinks_have_still_to_apply_in_words() -> None:
    clock, left = Clock(), {"records": 9_000}
    said, told = Words(clock, lambda _: left["records"]), ""
    said.of(run(read=100_000))
    for _ in range(5):
        told = said.of(run("applying", read=100_000, reason="search: 9 records"))
        clock.now, left["records"] = clock.now + 1, left["records"] - 1_000
    wanted = "5,000 records left to apply, 1,000 records/s, about 5 s left"
    assert told == f"run 3f2a: applying; {wanted}; search: 9 records"
    assert Words(clock).of(run("sweeping", wanted="abort")) == "run 3f2a: aborting while sweeping"


def test_the_rate_is_of_late_and_without_pauses() -> None:
    clock = Clock()
    said, read, last = Words(clock), 0, ""
    for rate in (10, 1_000):
        for _ in range(60):
            clock.now, read = clock.now + 1, read + rate
            last = said.of(run(read=read))
        assert last.endswith(f", {rate:,} rows/s")
    said.of(run(read=read, wanted="pause"))
    clock.now += 3_600
    said.of(run(read=read))
    clock.now += 2
    assert said.of(run(read=read + 200)).endswith(", 100 rows/s")


def test_words_are_said_when_the_state_changes_and_else_now_and_then() -> None:
    clock, said = Clock(), list[str]()
    see = in_words(said.append, clock)
    for seen in (run("queued"), run("queued"), *(run(read=n) for n in range(1, 60)), run("applying")):
        see(seen)
        clock.now += 0.2
    assert [said[0], said[-1]] == ["run 3f2a: queued", "run 3f2a: applying"]
    assert len(said) == 5


@pytest.mark.parametrize(
    ("seen", "filled", "words"),
    [
        (run(read=10_000, estimate=20_000), 20, "10,000 rows"),
        (run(read=30_000, estimate=20_000), 20, "30,000 rows"),  # of how many nobody knows: it moves
        (
            run("applying", read=30_000, estimate=40_000),
            20,
            "run 3f2a: applying; 9,000 records left to apply",
        ),
    ],
)
def test_in_a_terminal_there_is_a_bar(seen: ResnapshotEntry, filled: int, words: str) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, no_color=True)
    with shown(as_json=False, console=console, left=lambda _: 9_000) as see:
        see(run(read=10, estimate=20))  # a total that was known once is forgotten
        see(seen)
    (last,) = [frame for frame in screen.getvalue().split("\x1b[2K") if words in frame]
    assert Text.from_ansi(last).plain.count("━") == filled


def test_elsewhere_there_are_lines_and_none_beside_json(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json, lines in ((False, ["run 3f2a: queued", "run 3f2a: applying"]), (True, [])):
        with shown(as_json=as_json, console=Console(file=io.StringIO())) as see:
            for seen in (run("queued"), run("queued"), run("applying")):
                see(seen)
        captured = capsys.readouterr()
        assert captured.out == ""
        assert [line.removeprefix("· ") for line in captured.err.splitlines()] == lines
