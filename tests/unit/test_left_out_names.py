"""A column that is left out stays so, whatever becomes of its name, its number and its table."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.postgres.left_out import CHOSEN, LeftOut, renamed
from headrace.model.schema import TableId

T = TableId("public", "users")
CHOICE = {T: ["password_hash"]}

Look = tuple[int | None, dict[str, str]]
"""The table's number, None while there is none, and its columns by theirs."""

FIRST: Look = (7, {"1": "id", "2": "name", "3": "password_hash"})
RENAMED: Look = (7, {"1": "id", "2": "name", "3": "pw_hash"})
RENAMED_AT_ONCE: Look = (7, {"3": "password_hash"})
AGAIN: Look = (7, {"1": "id", "2": "name", "3": "secret"})
BESIDE: Look = (7, {**AGAIN[1], "4": "pw_hash"})
LEFT_ALONE: Look = (7, {"1": "id", "4": "pw_hash"})
AWAY: Look = (None, {})
TWO: list[Look] = [FIRST, RENAMED, (7, {"1": "id", "3": "pw_hash", "4": "password_hash"})]
"""A column that was left out was given another name, and a new one its own."""
IN_STEPS: list[Look] = [(8, {"2": "password_hash"}), (8, {"2": "password_hash", "3": "pw_hash"})]
AGAIN_IN_STEPS: list[Look] = [(7, {"5": "password_hash"}), (7, {"5": "password_hash", "6": "pw_hash"})]
UNSURE: list[Look] = [FIRST, RENAMED, AGAIN, BESIDE, (8, {"1": "id", "2": "pw_hash"})]

NEXT: Look = (9, {"1": "id", "2": "pw_hash"})


def left_out(*looks: Look) -> tuple[set[str], set[str]]:
    """Return which columns are left out at the last look, and which are told to be so under other names."""
    facts: dict[str, Any] = {}
    out, told = set[str](), set[str]()
    for oid, columns in looks:
        left = LeftOut.of(CHOICE, facts)
        out = {columns[number] for number in left.among(T, oid, columns)} if oid else set()
        now = {"oid": oid, "columns": {number: [name] for number, name in columns.items()} or None}
        facts = {T.quoted: {**now, CHOSEN: left.carried(T, now)}}
        told = {*renamed(CHOICE, {T: now}, facts).get(T, ())}
        if oid:
            assert out == {columns[number] for number in LeftOut.of(CHOICE, facts).among(T, oid, columns)}
    return out, told


@pytest.mark.parametrize(
    ("looks", "out"),
    [
        ([FIRST], {"password_hash"}),
        ([FIRST, RENAMED], {"pw_hash"}),
        ([FIRST, RENAMED, AGAIN], {"secret"}),
        # While it is there, another column may have a name that it had.
        ([FIRST, RENAMED, AGAIN, (7, {**AGAIN[1], "4": "pw_hash"})], {"secret"}),
        # A table that is made anew, at once or in steps.
        ([FIRST, RENAMED, (8, {"1": "pw_hash", "2": "id"})], {"pw_hash"}),
        ([FIRST, RENAMED, (8, {"1": "id"}), (8, {"1": "id", "2": "pw_hash"})], {"pw_hash"}),
        ([FIRST, RENAMED, (8, {"1": "id"}), (9, {"1": "id"}), (9, {"3": "pw_hash"})], {"pw_hash"}),
        ([FIRST, RENAMED, (8, {"1": "password_hash", "2": "pw_hash"})], {"password_hash"}),
        # Of the names that it had the newest is its own; another column has the other one.
        ([FIRST, RENAMED, AGAIN, (8, {"1": "pw_hash", "2": "secret"})], {"secret"}),
        ([FIRST, RENAMED, AGAIN, (8, {"1": "pw_hash", "2": "id"})], {"pw_hash"}),
        # A column that is dropped and made anew.
        ([FIRST, RENAMED, (7, {"1": "id"}), (7, {"1": "id", "4": "pw_hash"})], {"pw_hash"}),
        ([FIRST, RENAMED, (7, {"1": "id", "4": "pw_hash"})], {"pw_hash"}),
        ([RENAMED_AT_ONCE, (7, {"3": "b", "4": "x"}), (7, {"4": "x"}), (7, {"4": "b"})], {"b"}),
        # Another one that had its name before it was gone is captured still.
        ([FIRST, RENAMED, AGAIN, (7, {**AGAIN[1], "4": "pw_hash"}), (7, {"1": "id", "4": "pw_hash"})], set()),
        ([FIRST, RENAMED, BESIDE, LEFT_ALONE, AWAY, LEFT_ALONE], set()),
        ([FIRST, RENAMED, BESIDE, AWAY, LEFT_ALONE], set()),
        ([FIRST, RENAMED, BESIDE, LEFT_ALONE, (8, {"1": "id", "2": "pw_hash"})], set()),
        ([FIRST, RENAMED, BESIDE, LEFT_ALONE, AWAY, (8, {"1": "id", "2": "pw_hash"})], set()),
        # One that was there still has gone with its table, and is back under a name that another one had.
        ([FIRST, RENAMED, AGAIN, BESIDE, (8, {"1": "id", "3": "pw_hash"})], {"pw_hash"}),
        ([FIRST, RENAMED, AGAIN, BESIDE, AWAY, (8, {"1": "id", "3": "pw_hash"})], {"pw_hash"}),
        # Of which another has the name for a while, so that nobody can tell: both are left out.
        ([*UNSURE, BESIDE], {"secret", "pw_hash"}),
        ([*UNSURE, (7, {"1": "id", "3": "zz", "4": "pw_hash"})], {"zz", "pw_hash"}),
        ([*UNSURE, (8, {"1": "id", "2": "pw_hash", "3": "secret"})], {"secret", "pw_hash"}),
        ([*UNSURE, AWAY, (8, {"1": "id", "2": "pw_hash", "3": "secret"})], {"secret", "pw_hash"}),
        ([*UNSURE, (9, {"1": "id", "2": "pw_hash", "3": "secret"})], {"secret", "pw_hash"}),
        ([FIRST, RENAMED, AGAIN, BESIDE, (8, {"2": "pw_hash", "3": "secret"})], {"secret"}),
        # So it stays through further tables, until the column itself is back.
        ([*UNSURE, NEXT, (9, {"2": "pw_hash", "3": "secret"})], {"secret", "pw_hash"}),
        ([*UNSURE, NEXT, BESIDE], {"secret", "pw_hash"}),
        ([*UNSURE, NEXT, (7, {"3": "zz", "4": "pw_hash"})], {"zz", "pw_hash"}),
        # Two are left out, one of them under the name that the other one had: each stays so.
        (TWO, {"password_hash", "pw_hash"}),
        ([*TWO, (8, {"3": "pw_hash", "4": "password_hash"})], {"password_hash", "pw_hash"}),
        ([*TWO, AWAY, (8, {"3": "pw_hash", "4": "password_hash"})], {"password_hash", "pw_hash"}),
        ([*TWO, *IN_STEPS], {"password_hash", "pw_hash"}),
        ([*TWO, (8, {"1": "id"}), *IN_STEPS], {"password_hash", "pw_hash"}),
        ([*TWO, (7, {"1": "id"}), (7, {"5": "pw_hash", "6": "password_hash"})], {"password_hash", "pw_hash"}),
        ([*TWO, (7, {"1": "id"}), *AGAIN_IN_STEPS], {"password_hash", "pw_hash"}),
        # Another table has had the place for a while, and a migration goes on with the former one.
        ([FIRST, RENAMED, (8, {"1": "id"}), (7, {"1": "id", "3": "zz"})], {"zz"}),
        ([FIRST, RENAMED, AWAY, (7, {"1": "id", "3": "zz"})], {"zz"}),
    ],
)  # fmt: skip
def test_it_stays_left_out(looks: list[Look], out: set[str]) -> None:
    found, told = left_out(*looks)
    assert found == out
    assert told == out - {"password_hash"}


def test_each_of_two_that_are_gone_stays_left_out() -> None:
    chosen = {T: ["password_hash", "ssn"]}
    facts: dict[str, Any] = {}
    for oid, columns in (
        (7, {"1": "id", "3": "password_hash"}),
        (7, {"1": "id", "3": "pw_hash"}),
        (8, {"1": "id", "3": "ssn"}),
        (9, {"1": "id"}),
        (9, {"1": "id", "2": "pw_hash", "3": "ssn"}),
    ):
        left = LeftOut.of(chosen, facts)
        now = {"oid": oid, "columns": {number: [name] for number, name in columns.items()}}
        facts = {T.quoted: {**now, CHOSEN: left.carried(T, now)}}
    assert {facts[T.quoted]["columns"][n][0] for n in LeftOut.of(chosen, facts).among(T, 9, columns)} == {
        "pw_hash", "ssn"
    }  # fmt: skip
