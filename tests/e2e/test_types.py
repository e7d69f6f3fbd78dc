"""Every captured type through the whole chain: snapshot, stream and an unchanged large value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.model.schema import Column
from headrace.model.values import canonical
from tests.golden.cases import CASES, LARGE, SETUP
from tests.golden.meaning import Golden, column_of, expected, goldens
from tests.golden.record import ELEMENTS, TEXT, TEXTS
from tests.support.mirror import Mirror, mirrored
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
NOT_EVERYWHERE = {
    "numeric(10,2)": ("'NaN'",),
    "price": ("'NaN'",),
    "date": ("'0044-03-15 BC'", "'4713-01-01 BC'", "'1582-10-10'", "'infinity'", "'-infinity'"),
    "timestamp": ("'294276-12-31 23:59:59.999999'", "'infinity'", "'-infinity'"),
    "timestamp with time zone": ("'294276-12-31 23:59:59.999999+00'", "'infinity'", "'-infinity'"),
    "interval": ("'infinity'",),
    "json": ('\'{"a": 1.10, "a": 2}\'',),
    "integer[]": ("'{{1,2},{3,4}}'", "'[2:3]={7,8}'"),
    "boolean[]": ("'{{t},{f}}'",),
    "double precision[]": ("'{{0.1},{0.2}}'",),
    "text[]": ("'{{a,b},{c,d}}'",),
    "uuid[]": (f"'{{{{{UUID}}},{{{UUID}}}}}'",),
    "jsonb[]": ("ARRAY[['1'::jsonb],['2'::jsonb]]",),
    "mood[]": ("'{{sad},{ok}}'",),
    "date[]": ("'{infinity}'", "'{-infinity}'"),
}
"""What docs/types.md says is refused somewhere; ``tests/unit/test_golden.py`` covers it."""

SAMPLES: dict[str, Golden] = {golden.native: golden for golden in goldens() if golden.text is None}
NATIVES = [native for native in CASES if column_of(SAMPLES[native], full=False) is not None]
LARGES = [native for native in LARGE if native in SAMPLES and column_of(SAMPLES[native], full=False)]


_V = re.compile(r"\bv\b")


def literals(native: str) -> list[str]:
    return [literal for literal in CASES[native] if literal not in NOT_EVERYWHERE.get(native, ())]


def fill(first: int) -> Iterator[str]:
    """Yield one INSERT per row; row n holds the n-th literal of every type."""
    for number in range(max(len(literals(native)) for native in NATIVES) + 1):
        values = [
            f"({literals(native)[number]})::{native}" if number < len(literals(native)) else "NULL"
            for native in NATIVES
        ]
        yield f"INSERT INTO kinds VALUES ({first + number}, {', '.join(values)})"


PLAIN = (
    "SET datestyle = 'ISO, MDY'",
    "SET timezone = 'UTC'",
    "SET intervalstyle = 'postgres'",
    "SET bytea_output = 'hex'",
    "SET extra_float_digits = 1",
)
ELSEWHERE = (
    "ALTER DATABASE kinds SET datestyle = 'German, DMY'",
    "ALTER DATABASE kinds SET timezone = 'Asia/Kathmandu'",
    "ALTER DATABASE kinds SET intervalstyle = 'sql_standard'",
    "ALTER DATABASE kinds SET bytea_output = 'escape'",
    "ALTER DATABASE kinds SET extra_float_digits = -5",
)
"""How a database in another country, and an old one, may be told to write values."""


@pytest.fixture(
    scope="module",
    params=[(), pytest.param(ELSEWHERE, marks=pytest.mark.deep)],
    ids=["plain", "elsewhere"],
)
def mirror(stack: RunningStack, request: pytest.FixtureRequest) -> Iterator[Mirror]:
    columns = ", ".join(f"c{number} {native}" for number, native in enumerate(NATIVES))
    large = ", ".join(f"l{number} {native}" for number, native in enumerate(LARGES))
    values = ", ".join(f"({LARGE[native]})::{native}" for native in LARGES)
    external = (f"ALTER TABLE large ALTER l{number} SET STORAGE EXTERNAL" for number in range(len(LARGES)))
    statements = (
        *SETUP,
        f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})",
        f"CREATE TABLE large (id int PRIMARY KEY, other int, {large})",
        *external,
        *fill(0),
        f"INSERT INTO large VALUES (1, 0, {values})",
        *request.param,
    )
    with mirrored(stack, "kinds", *statements) as made:
        yield made


def truth(mirror: Mirror, table: str, columns: dict[str, Column], natives: dict[str, str]) -> dict[str, Any]:
    """Return row → column → canonical value, from Postgres' own output."""
    texts = [output_of(SAMPLES[natives[name]], name) for name in columns]
    rows = mirror.database.run(*PLAIN, f"SELECT id, {', '.join(texts)} FROM {table}")
    return {
        str(key): {
            name: canonical(column, expected(column, text))
            for (name, column), text in zip(columns.items(), row, strict=True)
        }
        for key, *row in rows
    }


def output_of(golden: Golden, column: str) -> str:
    """Return the SQL of a column's own text output."""
    template = ELEMENTS if golden.type[2] else TEXTS.get(golden.type[0], TEXT)
    return f"CASE WHEN {column} IS NOT NULL THEN {_V.sub(column, template)} END"


def assert_equal(mirror: Mirror, table: str, natives: dict[str, str]) -> None:
    mirror.settle()
    assert mirror.letters == []
    by_name = mirror.schema(table).by_name
    assert set(natives) <= set(by_name)
    columns = {name: by_name[name] for name in natives}
    wanted = truth(mirror, table, columns, natives)
    for sink, rows in mirror.stored(table).items():
        found = {
            key: {name: canonical(columns[name], row.get(name)) for name in columns}
            for key, row in rows.items()
        }
        assert found.keys() == wanted.keys(), sink
        for key, row in wanted.items():
            differing = {natives[n]: (found[key][n], row[n]) for n in row if found[key][n] != row[n]}
            assert not differing, (sink, key, differing)


def test_every_value_of_every_type_arrives_in_every_store(mirror: Mirror) -> None:
    natives = {f"c{number}": native for number, native in enumerate(NATIVES)}
    assert len(natives) > 40
    assert_equal(mirror, "kinds", natives)
    mirror.database.run(*fill(100), "DELETE FROM kinds WHERE id IN (0, 101)")
    assert_equal(mirror, "kinds", natives)


def test_a_large_value_outlives_an_update_that_does_not_touch_it(mirror: Mirror) -> None:
    natives = {f"l{number}": native for number, native in enumerate(LARGES)}
    assert {"bytea", "hstore", "uuid[]", "integer[]"} <= set(natives.values())
    mirror.database.run("UPDATE large SET other = other + 1", "UPDATE large SET id = 2")
    assert_equal(mirror, "large", natives)
    assert mirror.stored("large")["kindscache"]["2"]["other"] == 1
