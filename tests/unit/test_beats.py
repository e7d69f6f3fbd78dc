"""What takes long to begin gives signs of life, and what hangs does not for ever."""

from __future__ import annotations

import threading

from spark_jobs.beats import beating
from tests.support.waiting import until


def test_signs_are_given_until_it_has_begun() -> None:
    said: list[int] = []
    with beating(lambda: said.append(1), every=0.01):
        assert said, "the first one before anything is done"
        until(lambda: len(said) > 3)
    assert not [thread for thread in threading.enumerate() if thread.name == "starting"]


def test_what_hangs_gives_no_more_signs() -> None:
    said: list[int] = []
    with beating(lambda: said.append(1), every=0.01, most=0.05):
        until(lambda: not [thread for thread in threading.enumerate() if thread.name == "starting"])
        assert said
