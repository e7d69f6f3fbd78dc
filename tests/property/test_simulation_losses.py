"""The engine's own batches, simulated over stores and a Kafka that lose what they took.

The code under test is the real one, from a batch's plan to what is told of each table: the look at the store,
the rewind, the refill, the look at Kafka's history, sweeps and their repetition, lives. Spark, Kafka and the
source are models, and no time passes. ``tests/property/simulation/losses.py`` says what has to hold.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.property.simulation.losses import Losses
from tests.property.simulation.programs import DEEP, fixed, fresh_seed, run_fresh
from tests.property.simulation.store import BAD

if not DEEP:
    Losses.TestCase.settings = fixed(programs=20, steps=25)

TestLosses = pytest.mark.timeout(0)(Losses.TestCase)


def refuse(chain: Losses, *keys: int) -> bool:
    """Let the store refuse a change of each row; return whether it is told that they are behind."""
    chain.mend_and_replay(True, None)
    chain.work_and_deliver([(0, "touch", key, key, BAD) for key in keys], 1000, None)
    return chain.engine.told_behind("public.t0") == len(keys)


PROGRAMS: dict[str, Callable[[Losses], object]] = {
    "everything is lost after a sweep": lambda chain: (
        chain.run_or_finish(0, {1}, True),
        chain.lose_everything(),
    ),
    "a table is lost after a sweep": lambda chain: (
        chain.run_or_finish(0, {1}, True),
        chain.lose_table(0, None),
    ),
    "a store of an earlier life is restored": lambda chain: (
        chain.back_up_or_restore(),
        chain.work_and_deliver([(0, "delete", 1, 1, "x")], 1, ("t0", 1, "before")),
        chain.recover_or_finish(True),
        chain.back_up_or_restore(),
    ),
    "a connector tells again of rows that were found gone": lambda chain: (
        chain.run_or_finish(0, {1, 2}, True),
        chain.restart(0, 2),
    ),
    "another record stands where one was applied": lambda chain: chain.cut(0, 1, [(0, "write", 3, 3, "y")]),
    "a topic is made anew": lambda chain: chain.make_anew(0),
    "the oldest records are gone when the store is": lambda chain: (
        chain.trim(0, 1),
        chain.lose_everything(),
    ),
    "a letter is lost, and the next change leaves the large value out": lambda chain: (
        refuse(chain, 1),
        chain.back_up_or_restore(),
        chain.mend_and_replay(False, None),
        chain.back_up_or_restore(),
        chain.look(None),
        chain.work_and_deliver([(0, "write", 1, 1, "y")], 1000, None),
    ),
    "a letter is lost that a refill had applied": lambda chain: (
        refuse(chain, 1),
        chain.back_up_or_restore(),
        vars(chain.store.shelf).update(picky=False),
        chain.lose_everything(),
        chain.look(None),
        chain.back_up_or_restore(),
        chain.look(None),
    ),
    "letters are lost twice": lambda chain: (
        refuse(chain, 1, 2),
        chain.mend_and_replay(False, None),
        chain.lose_writes(3, []),
        chain.look(None),
        chain.mend_and_replay(False, None),
        chain.lose_writes(2, []),
        chain.look(None),
    ),
    "a driver dies between a letter and its mark": lambda chain: (
        refuse(chain, 1),
        chain.mend_and_replay(False, ("settle", 1, "before")),
        chain.look(None),
    ),
    "a sweep is lost that came long after its run": lambda chain: (
        chain.run_or_finish(0, {1}, False),
        chain.work_and_deliver([], 1000, None),
        chain.back_up_or_restore(),
        chain.run_or_finish(0, set(), False),
        chain.back_up_or_restore(),
        chain.look(None),
    ),
    "a sweep is asked for before anybody has missed a letter": lambda chain: (
        chain.run_or_finish(0, {2}, False),
        chain.work_and_deliver([], 1000, None),
        refuse(chain, 1),
        chain.back_up_or_restore(),
        chain.mend_and_replay(False, None),
        chain.back_up_or_restore(),
        chain.run_or_finish(0, set(), False),
        chain.look(None),
        chain.work_and_deliver([(0, "write", 1, 1, "y")], 1000, None),
    ),
    "a sweep is lost of a run that found nothing": lambda chain: (
        chain.back_up_or_restore(),
        chain.run_or_finish(0, {1, 2}, True),
        chain.back_up_or_restore(),
        chain.look(None),
    ),
    "a sweep finds nothing in a store that was emptied, and a backup is restored": lambda chain: (
        chain.recover_or_finish(True),
        chain.back_up_or_restore(),
        chain.lose_everything(),
        chain.run_or_finish(0, {1, 2}, False),
        chain.run_or_finish(0, set(), False),
        chain.back_up_or_restore(),
        chain.look(None),
    ),
    "nothing but a sweep is lost": lambda chain: (
        chain.run_or_finish(0, {1}, True),
        chain.lose_writes(2, []),
        chain.look(None),
    ),
    "a target is gone whose topic is, too": lambda chain: (
        chain.lose_everything(),
        chain.look(("t0", 1, "before")),
        chain.lose_everything(),
        chain.make_anew(0),
    ),
}


@pytest.mark.parametrize("told_apart", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_was_lost_is_there_again_or_told(name: str, told_apart: bool) -> None:
    chain = Losses()
    try:
        chain.begin(told_apart, {1, 2})
        chain.come_to_rest()
        PROGRAMS[name](chain)
    finally:
        chain.teardown()


@pytest.mark.parametrize("looks", [1, 2])
def test_a_target_that_is_away_for_one_look_is_not_filled_again(looks: int) -> None:
    """As an index that an operator closes, changes and opens; one that is away for longer is filled again."""
    chain = Losses()
    try:
        chain.begin(True, {1, 2})
        chain.come_to_rest()
        before = chain.store.state.writes
        chain.store.shelf.away = looks
        chain.engine.look()
        assert (chain.store.state.writes == before) is (looks == 1)
        assert chain.engine.look()
    finally:
        chain.teardown()


@pytest.mark.deep
@pytest.mark.fresh
@pytest.mark.timeout(0)
def test_other_losses_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    run_fresh(Losses, programs=200, steps=30, number=fresh_seed(capsys))
