"""What takes long to begin gives signs of life, and what hangs does not for ever."""

from __future__ import annotations

import threading

from spark_jobs.beats import beating
from tests.support.waiting import elapse, stays, until

_EVERY = 0.01


def _beats() -> bool:
    return any(thread.name == "beats" for thread in threading.enumerate())


def test_signs_are_given_until_it_has_begun() -> None:
    said: list[int] = []
    with beating(lambda: said.append(1), every=_EVERY):
        assert said, "the first one before anything is done"
        until(lambda: len(said) > 3)
    assert not _beats()


def test_what_hangs_gives_no_more_signs_and_what_goes_on_does() -> None:
    said: list[int] = []
    most = 5 * _EVERY
    with beating(lambda: said.append(1), every=_EVERY, most=most) as go_on:
        elapse(2 * most)
        begun = len(said) + 1  # one may have been begun in time
        stays(lambda: len(said) <= begun, most)
        until(lambda: (go_on(), len(said) > begun)[1])
