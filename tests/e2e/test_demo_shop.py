"""The shop, its visitors and its reading, on a real Postgres."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from headrace.demo import shop
from headrace.demo.compare import Expected, Found, compare
from headrace.demo.original import Original
from headrace.demo.stock import TABLES, Sizes
from headrace.demo.workload import Workload
from headrace.model.errors import UsageError
from headrace.model.schema import LogicalType
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack

SIZES = Sizes().scaled(0.05)
NAME = "shop_alone"


@pytest.fixture
def server(stack: RunningStack) -> str:
    return stack.endpoints.postgres_dsn


@pytest.fixture
def dsn(server: str) -> Iterator[str]:
    yield shop.create(server, NAME)
    shop.drop(server, NAME)


def value(dsn: str, query: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def test_the_seed_is_what_it_says_and_partly_stored_out_of_line(dsn: str) -> None:
    counts = shop.seed(dsn, sizes=SIZES)
    assert counts == {table: value(dsn, f"SELECT count(*) FROM {table}") for table in TABLES}
    toasted = value(
        dsn, "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'products'::regclass"
    )
    assert isinstance(toasted, int)
    assert toasted > 50_000


def test_the_same_seed_makes_the_same_shop(server: str, dsn: str) -> None:
    shop.seed(dsn, seed=5, sizes=SIZES)
    other = shop.create(server, f"{NAME}_2")
    try:
        shop.seed(other, seed=5, sizes=SIZES)
        with Original.open(dsn) as first, Original.open(other) as second:
            for schema in first.tables():
                again = (Found(None, row) for row in second.rows(schema))
                assert compare("again", Expected(schema, first.rows(schema)), again).equal
    finally:
        shop.drop(server, f"{NAME}_2")


def test_every_column_is_read_as_a_type_that_is_known(dsn: str) -> None:
    with Original.open(dsn) as original:
        schemas = {schema.table.name: schema for schema in original.tables()}
    assert schemas.keys() == set(TABLES)
    assert schemas["order_items"].key == ("order_id", "line_no")
    kinds = {column.type for schema in schemas.values() for column in schema.columns}
    assert LogicalType.OTHER not in kinds
    assert {LogicalType.ENUM, LogicalType.BYTES, LogicalType.JSON, LogicalType.NUMERIC} <= kinds


def test_visitors_do_all_that_they_should_and_count_it(dsn: str) -> None:
    shop.seed(dsn, sizes=SIZES)
    people = Workload(dsn, rate=2_000.0, sizes=SIZES, bulk_rows=500, bulk_after=1.0)
    people.start()

    def missing() -> list[str]:
        told = people.tally().as_dict()
        return [what for what, count in told.items() if not count and what != "conflicts"]

    until(
        lambda: people.tally().changes > 2_000 and people.tally().largest >= 500 and not missing(),
        why=missing,
    )
    tally = people.stop()
    rows = sum(int(str(value(dsn, f"SELECT count(*) FROM {table}"))) for table in TABLES)
    assert rows == SIZES.total + tally.inserts - tally.deletes


@pytest.mark.deep
def test_visitors_keep_to_their_rate(dsn: str) -> None:
    shop.seed(dsn, sizes=SIZES)
    people = Workload(dsn, rate=100.0, sizes=SIZES, bulk_rows=0)
    began = time.monotonic()
    people.start()
    until(lambda: people.tally().changes >= 200)
    changes = people.stop().changes
    assert changes <= 125 * (time.monotonic() - began)


def test_a_database_of_somebody_else_is_never_removed(server: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE precious")
    try:
        for act in (shop.create, shop.drop, shop.refuse_strangers):
            with pytest.raises(UsageError) as refusal:
                act(server, "precious")
            assert refusal.value.code == "DEMO_DATABASE_TAKEN"
        assert value(server, "SELECT count(*) FROM pg_database WHERE datname = 'precious'") == 1
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("DROP DATABASE precious")
