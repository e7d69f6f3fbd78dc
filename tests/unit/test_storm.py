"""A storm is the same for the same seed, and its witness knows what may be seen."""

from __future__ import annotations

from dataclasses import replace

from tests.storm.__main__ import _commands
from tests.storm.actions import ACTIONS
from tests.storm.heal import useless
from tests.storm.plan import Plan, draw
from tests.storm.run import broke
from tests.storm.witness import ROWS, Ledger, _State

WEIGHTS = {name: action.weight for name, action in ACTIONS.items()}


def test_a_seed_draws_the_same_plan_again_and_others_draw_others() -> None:
    assert draw(7, 12, WEIGHTS) == draw(7, 12, WEIGHTS)
    assert draw(7, 12, WEIGHTS) != draw(8, 12, WEIGHTS)
    assert len(draw(7, 12, WEIGHTS).strikes) == 12


def test_every_action_is_drawn_sooner_or_later() -> None:
    drawn = {strike.action for seed in range(40) for strike in draw(seed, 10, WEIGHTS).strikes}
    assert drawn == ACTIONS.keys()


def test_the_witness_tells_old_states_from_those_that_may_be_seen() -> None:
    ledger = Ledger()
    ledger.states[1] += [_State(1.0, 1.1, 5), _State(2.0, 2.1, 6), _State(3.0, None, None)]
    assert ledger.allowed(1, since=1.0) == {0, 5, 6, None}
    assert ledger.allowed(1, since=2.5) == {6, None}
    rows = [{"id": number, "n": 0} for number in range(1, ROWS + 1)]
    assert ledger.wrong(rows, since=1.0) == []
    assert ledger.wrong(rows, since=2.5) == ["row 1 shows 0, allowed: 6, None"]
    assert ledger.wrong(rows[1:], since=2.5) == []
    assert ledger.wrong(rows[:-1], since=1.0) == [f"row {ROWS} shows None, allowed: 0"]
    assert ledger.wrong([*rows, {"id": 99, "n": 1}], since=1.0) == ["row 99 was never there"]


def test_a_remedy_that_fails_and_is_told_there_again_fails_the_storm_and_is_counted() -> None:
    failed = {("shop",): "headrace recover shop", ("shop", "lake", "public.t"): "headrace resnapshot shop t"}
    told = {("shop",): "headrace source resume shop", ("shop", "lake", "public.u"): failed["shop",]}
    assert useless(failed, told) == []
    again = useless(failed, {**told, **dict([*failed.items()][1:])})
    assert again == ["shop lake public.t: headrace resnapshot shop t"]

    storm = replace(broke(Plan(1, 1.0, ()), ValueError(), 1.0), changes=9, broken=())
    storm = replace(storm, remedies=("a", "b"), failed=("a",), refused=("a", "c"))
    assert storm.passed
    assert not replace(storm, useless=tuple(again)).passed
    assert _commands([storm, storm]) == "2 of 4 remedies failed, 4 commands refused"
