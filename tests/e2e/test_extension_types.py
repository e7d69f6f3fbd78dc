"""Vectors and shapes through the whole chain: as their extensions print them, from snapshot and stream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from connectors.postgres import PostgresSource
from headrace.cli.main import app
from headrace.control import lag
from headrace.model.schema import LogicalType, TableId
from headrace.model.values import canonical
from tests.golden.meaning import Golden, column_of, expected, goldens
from tests.golden.suite import EXTENSIONS
from tests.support.mirror import Mirror, mirrored
from tests.support.stack import RunningStack
from tests.support.standins import STAND_INS
from tests.support.waiting import until

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(400)]

NATIVES = {
    "vector": "vector",
    "halfvec": "halfvec",
    "sparsevec": "sparsevec(32767)",
    "geometry": "geometry",
    "geography": "geography",
}
"""Column → the type whose recorded values it holds."""

_EACH = "(SELECT string_agg({0}, ',') FROM generate_series(1, 2000) i)"
_LINE = "'0102000020E6100000D0070000' || repeat('000000000000F03F0000000000000040', 2000)"
LARGE = {
    "vector": f"'[' || {_EACH.format('(i * 0.001)::real::text')} || ']'",
    "halfvec": f"'[' || {_EACH.format('i::text')} || ']'",
    "sparsevec": "'{' || " + _EACH.format("i || ':1.5'") + " || '}/32767'",
    "geometry": _LINE,
    "geography": _LINE,
}
"""Column → its text, so large that an update of another column leaves it out of the log."""


def samples(native: str) -> list[Golden]:
    recorded = goldens(EXTENSIONS)
    return [one for one in recorded if (one.native, one.phase) == (native, "stream") and one.text is not None]


def fill(first: int) -> Iterator[str]:
    """Yield one INSERT per row; row n holds the n-th recorded value of every type."""
    found = {name: samples(native) for name, native in NATIVES.items()}
    for number in range(max(map(len, found.values())) + 1):
        values = [
            f"'{values[number].text}'::{name}" if number < len(values) else "NULL"
            for name, values in found.items()
        ]
        yield f"INSERT INTO kinds VALUES ({first + number}, 0, {', '.join(values)})"


def large(key: int) -> str:
    values = ", ".join(f"({LARGE[name]})::{name}" for name in NATIVES)
    return f"INSERT INTO kinds VALUES ({key}, 0, {values})"


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    columns = ", ".join(f"{name} {name}(9)" for name in NATIVES)
    external = (f"ALTER TABLE kinds ALTER {name} SET STORAGE EXTERNAL" for name in NATIVES)
    statements = (
        *STAND_INS,
        f"CREATE TABLE kinds (id int PRIMARY KEY, other int, {columns})",
        *external,
        "ALTER TABLE kinds REPLICA IDENTITY FULL",
        *fill(0),
        large(1000),
    )
    with mirrored(stack, "shapes", *statements) as made:
        yield made


def assert_equal(mirror: Mirror) -> None:
    mirror.settle()
    assert mirror.letters == []
    columns = {name: mirror.schema("kinds").by_name[name] for name in NATIVES}
    texts = ", ".join(f"format('%s', {name})" for name in NATIVES)
    wanted = {}
    for key, *row in mirror.database.run(f"SELECT id, {texts} FROM kinds"):
        pairs = zip(columns.items(), row, strict=True)
        wanted[str(key)] = {n: canonical(c, expected(c, text or None)) for (n, c), text in pairs}
    for sink, rows in mirror.stored("kinds").items():
        found = {
            key: {name: canonical(column, row.get(name)) for name, column in columns.items()}
            for key, row in rows.items()
        }
        assert found == wanted, sink


def test_every_value_of_every_type_arrives_in_every_store(mirror: Mirror) -> None:
    """Its time is that of the server, the source and the sinks, which this file shares."""
    for name, native in NATIVES.items():
        assert column_of(samples(native)[0]) is not None, name
    assert_equal(mirror)
    mirror.database.run(*fill(100), large(1001), "DELETE FROM kinds WHERE id IN (0, 101)")
    assert_equal(mirror)


def test_a_large_value_outlives_an_update_that_does_not_touch_it(mirror: Mirror) -> None:
    mirror.database.run("UPDATE kinds SET other = other + 1", "UPDATE kinds SET id = 2000 WHERE id = 1000")
    assert_equal(mirror)
    assert mirror.stored("kinds")["shapescache"]["2000"]["other"] == 1


def test_without_the_old_row_the_columns_are_named_and_left_out(mirror: Mirror) -> None:
    mirror.database.run(
        "CREATE DOMAIN place AS geometry",
        "CREATE TABLE plain (id int PRIMARY KEY, at place, wide sparsevec, three sparsevec(3), v vector)",
    )
    source, table = PostgresSource(mirror.database.dsn), TableId("public", "plain")
    assert source.catalogue([table])[0].extra["excluded"] == ("at", "wide", "three", "v")
    said = [finding for finding in source.preflight([table]) if finding.code == "SOURCE_COLUMN_UNCHANGED"]
    assert len(said) == 3
    (wide,) = [finding for finding in source.preflight([table]) if finding.code == "SOURCE_COLUMN_WIDE"]
    assert "wide" in wide.message
    mirror.database.run(said[0].hint, wide.hint.replace("…", "9"))
    (plain,) = source.catalogue([table])
    assert {column.name: (column.type, column.dimensions) for column in plain.columns[1:]} == {
        "at": (LogicalType.OTHER, 0),
        "wide": (LogicalType.OTHER, 0),
        "three": (LogicalType.OTHER, 0),
        "v": (LogicalType.FLOAT32, 1),
    }


def test_an_old_row_that_is_no_longer_logged_is_said(mirror: Mirror) -> None:
    mirror.database.run("ALTER TABLE kinds REPLICA IDENTITY DEFAULT")

    def told() -> lag.TableLag:
        (found,) = [one for one in lag.measure(mirror.context).tables if one.sink == "shapescache"]
        return found

    until(lambda: told().state is lag.State.RESYNC_REQUIRED)
    assert f"large values of {', '.join(NATIVES)}" in told().reason
    statement, _, command = told().remedy.partition(" -- then: headrace ")
    mirror.database.run(statement)
    done = CliRunner().invoke(app, [*command.split(), "--home", str(mirror.stack.home.root)])
    assert done.exit_code == 0, done.output
    mirror.settle()
