"""Values that the connector cannot deliver are looked for before a table is captured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.postgres import PostgresSource
from headrace.model.finding import Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack

pytestmark = pytest.mark.stack


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "source_values") as database:
        yield database


@pytest.mark.parametrize(
    ("native", "literal"),
    [
        ("date", "'0044-03-15 BC'"),
        ("date", "'1582-10-10'"),
        ("interval", "'infinity'"),
        ("int[]", "'{{1,2},{3,4}}'"),
    ],
)
def test_a_value_that_would_arrive_as_another_is_found_before(
    database: Database, native: str, literal: str
) -> None:
    database.run(f'CREATE TABLE t (a int PRIMARY KEY, "the Value" {native})')
    table = TableId("public", "t")
    errors = [f for f in PostgresSource(database.dsn).preflight([table]) if f.severity is Severity.ERROR]
    assert errors == []
    database.run(f"INSERT INTO t VALUES (1, NULL), (2, {literal})")
    (error,) = [f for f in PostgresSource(database.dsn).preflight([table]) if f.severity is Severity.ERROR]
    assert error.code == "SOURCE_VALUES"
    assert "the Value" in error.message
