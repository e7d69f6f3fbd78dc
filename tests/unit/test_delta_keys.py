"""Many keys at once have the ids that each has alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.key import Key
from sinks.delta.keys import key_ids

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PART = st.one_of(st.none(), TEXT, st.text("abc%:\x00\x1f\x7fä", max_size=4), st.integers().map(str))


@settings(deadline=None)
@given(st.integers(1, 3).flatmap(lambda width: st.lists(st.tuples(*[PART] * width))))
def test_ids_of_many_are_the_ids_of_each(parts: list[tuple[str | None, ...]]) -> None:
    assert key_ids(parts).to_pylist() == [Key(part).id for part in parts]


@pytest.mark.parametrize("part", ["%", ":", "\x00", "", None, "a:b", "ä", "x" * 100_000])
def test_a_part_that_is_spelled_differently_changes_its_own_id_only(part: str | None) -> None:
    keys = [("1",), (part,), ("2",)]
    assert key_ids(keys).to_pylist() == [Key(key).id for key in keys]
