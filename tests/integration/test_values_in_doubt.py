"""Values that the connector tells as others are looked up in the database, and arrive as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.control.lag import measure
from headrace.control.runs.start import resnapshot
from tests.support.mirror import Mirror, mirrored
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(600)]

BEFORE = (
    "(1, '{NaN,1.50}', '{sad,NULL}', '0', '{a.b,NULL}')",
    "(2, NULL, NULL, NULL, NULL)",
    "(3, '{2}', '{ok}', '-infinity', '{c}')",
)
AFTER = (
    "(4, '{Infinity,NULL}', '{NULL}', 'infinity', '{NULL}')",
    "(5, NULL, '{}', '00:00:00', '{}')",
)
ZERO = "P0Y0M0DT0H0M0S"
WANTED: dict[int, tuple[Any, ...]] = {
    1: (["NaN", "1.50"], ["sad", None], ZERO, ["a.b", None]),
    2: (None, None, None, None),
    3: (["2"], ["ok"], "-infinity", ["c"]),
    4: (["Infinity", None], [None], "infinity", [None]),
    5: (None, [], ZERO, []),
}


@pytest.fixture
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        "doubt",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE EXTENSION ltree",
        "CREATE TABLE vals (id int PRIMARY KEY, n numeric[], m mood[], i interval, p ltree[])",
        "ALTER TABLE vals REPLICA IDENTITY FULL",
        'CREATE TABLE "Terms" (a text, d date, v numeric(6,2), i interval, PRIMARY KEY (a, d, v))',
        f"INSERT INTO vals VALUES {', '.join(BEFORE)}",
    ) as made:
        yield made


def vals(mirror: Mirror) -> list[dict[int, tuple[Any, ...]]]:
    """Return what each store holds."""
    stores = mirror.stored("vals").values()
    return [{row["id"]: (row["n"], row["m"], row["i"], row["p"]) for row in rows.values()} for rows in stores]


def test_what_the_connector_loses_is_looked_up_by_key(mirror: Mirror) -> None:
    mirror.settle()
    before = {number: WANTED[number] for number in (1, 2, 3)}
    assert vals(mirror) == [before] * 3
    mirror.database.run(
        f"INSERT INTO vals VALUES {', '.join(AFTER)}",
        "INSERT INTO \"Terms\" VALUES ('a:b %', '2024-02-29', 1.50, 'infinity'), ('x', '2024-01-01', 2, '0')",
        "INSERT INTO \"Terms\" VALUES ('y', '2024-01-01', 2, '-infinity'), ('', '2024-01-01', 0, '1 day')",
    )
    mirror.settle()
    assert vals(mirror) == [WANTED] * 3
    for rows in mirror.stored("Terms").values():
        found = {row["a"]: row["i"] for row in rows.values()}
        assert found == {"a:b %": "infinity", "x": ZERO, "y": "-infinity", "": "P0Y0M1DT0H0M0S"}

    # Several dimensions are set aside by name, and never passed on as NULL; a later value heals the row.
    mirror.database.run(
        "UPDATE vals SET n = '{{1,2},{3,4}}' WHERE id = 5", "UPDATE vals SET n = '{7}' WHERE id = 2"
    )
    until(lambda: all(rows[2][0] == ["7"] for rows in vals(mirror)))
    until(lambda: all(t.behind == 1 for t in measure(mirror.context).tables if t.table == "public.vals"))
    assert all(rows[5] == WANTED[5] for rows in vals(mirror))
    assert any("several dimensions" in said for said in mirror.letters)
    mirror.database.run("UPDATE vals SET n = '{8}' WHERE id = 5")
    until(lambda: all(rows[5][0] == ["8"] for rows in vals(mirror)))


LISTS: dict[str, tuple[str, ...]] = {
    "t": ("text", "'{{a,b},{c,d}}'", "'{{NULL},{NULL}}'"),
    "u": ("uuid", "'{{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11},{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}}'"),
    "m": ("mood", "'{{sad},{ok}}'"),
    "c": ("citext", "'{{a},{b}}'"),
    "i": ("int", "'{{1,2},{3,4}}'"),
    "f": ("float8", "'{{1},{3}}'"),
    "b": ("boolean", "'{{t},{f}}'"),
    "j": ("jsonb", """ARRAY[['{"a":1}'::jsonb],['2'::jsonb]]"""),
    "d": ("date", "'{{2024-02-29},{2024-03-01}}'"),
}


def test_arrays_of_several_dimensions_are_refused_by_name_and_those_of_nulls_are_not(
    stack: RunningStack,
) -> None:
    columns = ", ".join(f"{name} {kind}[]" for name, (kind, *_) in LISTS.items())
    with mirrored(
        stack,
        "folded",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE EXTENSION citext",
        f"CREATE TABLE lists (id int PRIMARY KEY, {columns})",
        "ALTER TABLE lists REPLICA IDENTITY FULL",
        "INSERT INTO lists VALUES (1)",
    ) as mirror:
        mirror.settle()
        nested = {
            number: (name, literal)
            for number, (name, literal) in enumerate(
                ((name, literal) for name, (_, *literals) in LISTS.items() for literal in literals), 100
            )
        }
        for number, (name, literal) in nested.items():
            mirror.database.run(f"INSERT INTO lists (id, {name}) VALUES ({number}, {literal})")
        for number, name in enumerate(LISTS, 10):
            mirror.database.run(f"INSERT INTO lists (id, {name}) VALUES ({number}, '{{NULL}}')")

        def behind() -> set[int]:
            return {told.behind for told in measure(mirror.context).tables}

        until(lambda: behind() == {len(nested)})
        for rows in mirror.stored("lists").values():
            found = {row["id"]: row for row in rows.values()}
            assert set(found) == {1, *range(10, 10 + len(LISTS))}
            assert [found[number][name] for number, name in enumerate(LISTS, 10)] == [[None]] * len(LISTS)
        mirror.database.run(f"UPDATE lists SET {', '.join(f'{name} = NULL' for name in LISTS)}")
        until(lambda: behind() == {0})
        mirror.settle()


def test_a_date_that_reading_tells_as_another_is_looked_up(stack: RunningStack) -> None:
    with mirrored(
        stack,
        "olden",
        "CREATE TABLE births (id int PRIMARY KEY, at date)",
        "INSERT INTO births VALUES (1, '1500-01-01')",
    ) as mirror:
        mirror.settle()
        mirror.database.run("INSERT INTO births VALUES (2, '0044-03-15 BC'), (3, '1582-10-10'), (4, NULL)")
        mirror.settle()
        streamed = mirror.stored("births")
        days = {1: -171_664, 2: -735_160, 3: -141_432, 4: None}  # as Postgres counts them, from 1970
        assert [{row["id"]: row["at"] for row in rows.values()} for rows in streamed.values()] == [days] * 3
        resnapshot(mirror.context, mirror.name)
        mirror.settle()
        assert mirror.stored("births") == streamed
