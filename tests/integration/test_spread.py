"""What is asked of a table whose changes are to be spread over several partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.postgres import PostgresSource
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack

pytestmark = pytest.mark.stack

LOOSE = """
CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE t (a text COLLATE loose PRIMARY KEY)
"""


@pytest.fixture
def database(stack: RunningStack) -> Iterator[Database]:
    with fresh_database(stack.endpoints.postgres_dsn, "spread_asked") as database:
        yield database


@pytest.mark.parametrize(
    ("ddl", "codes"),
    [
        ("CREATE TABLE t (a int PRIMARY KEY, n bigint)", []),
        ("CREATE TABLE t (a text PRIMARY KEY, n bigint)", []),
        ("CREATE TABLE t (a int, b uuid, n text, PRIMARY KEY (a, b))", ["SOURCE_SPREAD_IDENTITY"]),
        ("CREATE TABLE t (a numeric PRIMARY KEY)", ["SOURCE_SPREAD_KEY"]),
        ("CREATE TABLE t (a date, b float8, PRIMARY KEY (a, b))", ["SOURCE_SPREAD_KEY"] * 2),
        (LOOSE, ["SOURCE_SPREAD_KEY"]),
    ],
)  # fmt: skip
def test_what_a_table_needs_for_several_partitions(database: Database, ddl: str, codes: list[str]) -> None:
    database.run(*ddl.split(";"))
    table = TableId("public", "t")

    def errors() -> list[Finding]:
        found = PostgresSource(database.dsn).preflight([table], partitions=4)
        return [finding for finding in found if finding.severity is Severity.ERROR]

    assert [finding.code for finding in errors()] == codes
    found = PostgresSource(database.dsn).preflight([table])
    assert not any(finding.code.startswith("SOURCE_SPREAD") for finding in found), (
        "one partition asks nothing"
    )
    if codes == ["SOURCE_SPREAD_IDENTITY"]:
        database.run(errors()[0].hint)
        assert errors() == []
