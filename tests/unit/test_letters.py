"""Dead letters on disk and rows that are behind: what is written comes back, a full disk is an error."""

from __future__ import annotations

import errno
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import EnvironmentError_
from headrace.model.letter import Letter, LetterId
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


@pytest.fixture
def small_files() -> Iterator[None]:
    """Have the kernel refuse files above 64 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_files")
def test_a_file_that_cannot_be_written_whole_is_not_there(tmp_path: Path) -> None:
    one = Letter(LetterId("t", 1, 0, 0), "s", "public.t", "C", "r", "1", 0, "", b"k", b"v" * 500)
    with pytest.raises(EnvironmentError_) as caught:
        write_letters(tmp_path / "a.avro", [one])
    assert caught.value.code == "DEAD_LETTERS_UNWRITABLE"
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.EFBIG
    assert not (tmp_path / "a.avro").exists()


def test_rows_behind_survive_a_restart_and_go_when_they_are_whole(tmp_path: Path) -> None:
    holds = Holds()
    holds.hold("public.t", "1", 5)
    holds.hold("public.t", "2", 6)
    save_holds(tmp_path, holds)
    later = load_holds(tmp_path)
    assert later.counts() == {"public.t": 2}
    later.heal("public.t", "1", 7)
    later.empty("public.t", 6)
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
