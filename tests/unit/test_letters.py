"""Dead letters on disk and rows that are behind: what is written comes back, a full disk is an error."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control import deadletters
from headrace.control.context import Context
from headrace.control.deadletters import Chosen, LetterState
from headrace.control.registry import Registry
from headrace.model.errors import SinkError
from headrace.model.letter import Letter, LetterId
from headrace.model.position import Position
from spark_jobs.held import Holds, load_holds, save_holds
from spark_jobs.letters import read_letters, write_letters

raw = st.one_of(st.none(), st.binary(max_size=40))
letters = st.builds(
    Letter,
    id=st.builds(
        LetterId, st.text(), st.integers(0, 2**19 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**44)
    ),
    sink=st.text(),
    table=st.text(),
    code=st.text(),
    reason=st.text(),
    row=st.one_of(st.none(), st.text()),
    at_ms=st.integers(0, 4_102_444_800_000),
    schema=st.text(),
    key=raw,
    value=raw,
    headers=st.lists(st.tuples(st.text(), raw), max_size=3).map(tuple),
)


@given(st.lists(letters, max_size=5))
def test_what_is_written_comes_back(tmp_path_factory: pytest.TempPathFactory, written: list[Letter]) -> None:
    path = tmp_path_factory.mktemp("letters") / "a.avro"
    write_letters(path, written)
    assert list(read_letters(path)) == written


FULL = """
import resource, signal, sys
from pathlib import Path
from headrace.model.errors import EnvironmentError_
from headrace.control import deadletters
from headrace.control.context import Context
from headrace.control.deadletters import Chosen, LetterState
from headrace.control.registry import Registry
from headrace.model.letter import Letter, LetterId
from headrace.model.position import Position
from spark_jobs.letters import write_letters

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
try:
    letter = Letter(LetterId("t", 1, 0, 0), "s", "public.t", "C", "r", "1", 0, "", b"k", b"v" * 500)
    write_letters(Path(sys.argv[1]), [letter])
except EnvironmentError_ as error:
    print(error.code, error.__cause__.errno)
"""


def test_a_file_that_cannot_be_written_whole_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    said = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True
    ).stdout
    assert said.split() == ["DEAD_LETTERS_UNWRITABLE", str(errno.EFBIG)]
    assert not path.exists()


def test_rows_behind_survive_a_restart_and_go_when_they_are_whole(tmp_path: Path) -> None:
    holds = Holds()
    holds.hold("public.t", "1", 5)
    holds.hold("public.t", "2", 6)
    save_holds(tmp_path, holds)
    later = load_holds(tmp_path)
    assert later.counts() == {"public.t": 2}
    later.heal("public.t", "1", 7)
    later.empty("public.t", Position.from_version(6))
    assert later.counts() == {"public.t": 1}
    save_holds(tmp_path, later)
    assert load_holds(tmp_path).held == {"public.t": {"2": [6]}}


def test_parts_of_a_batch_add_up_in_either_order() -> None:
    rejected, healed = Holds(), Holds({"t": {"1": [3]}})
    rejected.hold("t", "1", 9)
    healed.heal("t", "1", 4)
    one, other = Holds(), Holds()
    one.add(rejected)
    one.add(healed)
    other.add(healed)
    other.add(rejected)
    assert one.settled() == other.settled() == Holds({"t": {"1": [9]}})


@pytest.mark.parametrize("became", [LetterState.SUPERSEDED, LetterState.REPLAYED])
def test_a_letter_waits_again_when_its_row_lacks_the_change_again(
    context: Context, became: LetterState
) -> None:
    """A store that was lost is filled again, and refuses the same change as before."""
    position = Position(1, 7)
    file = context.dead_letters / "cache" / "a.avro"
    file.parent.mkdir(parents=True)
    write_letters(
        file, [Letter(LetterId("t", 1, 0, 7), "cache", "public.t", "C", "r", "5", 0, "", b"k", b"v")]
    )
    behind = Holds()
    behind.hold("public.t", "5", position.version)

    def waiting(holds: Holds) -> int:
        save_holds(context.checkpoints / "cache", holds)
        return len(deadletters.letters(context, Chosen()))

    assert waiting(behind) == 1
    (letter,) = deadletters.letters(context, Chosen())
    if became is LetterState.REPLAYED:
        with Registry(context.registry).begin() as session:
            deadletters._decide(session, letter.number, became)
    assert waiting(Holds()) == 0
    (letter,) = deadletters.letters(context, Chosen(state=None))
    assert letter.state == became.value
    assert waiting(behind) == 1


def test_a_sink_at_rest_keeps_no_others_letters_waiting(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sink in ("cache", "lake", "search"):
        file = context.dead_letters / sink / "a.avro"
        file.parent.mkdir(parents=True)
        write_letters(
            file, [Letter(LetterId("t", 1, 0, 7), sink, "public.t", "C", "r", "5", 0, "", b"k", b"v")]
        )
        holds = Holds()
        holds.hold("public.t", "5", Position(1, 7).version)
        save_holds(context.checkpoints / sink, holds)
    asked: list[str] = []

    def ask(_: Context, sink: str, __: object, heed: object) -> dict[str, list[object]]:
        del heed
        asked.append(sink)
        return {"rejects": []}

    monkeypatch.setattr(deadletters, "ask", ask)
    monkeypatch.setattr(deadletters, "_unusable", lambda *_: "")
    monkeypatch.setattr(deadletters, "resting", lambda _, sink: "paused" if sink == "lake" else "")
    with pytest.raises(SinkError) as caught:
        deadletters.replay(context, Chosen())
    assert (caught.value.code, caught.value.hint) == ("SINK_AT_REST", "headrace sink resume lake")
    assert asked == ["cache", "search"]
    for sink in asked:
        save_holds(context.checkpoints / sink, Holds())
    assert [letter.sink for letter in deadletters.letters(context, Chosen())] == ["lake"]
