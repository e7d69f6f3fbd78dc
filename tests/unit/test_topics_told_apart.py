"""Topics that Kafka does not tell apart: refused with both names before anything is made."""

from __future__ import annotations

from typing import cast

import pytest

from headrace.control.fitness import refuse_used, shared_topics
from headrace.control.kafka import Kafka
from headrace.model.errors import SourceError
from headrace.model.schema import TableId


class Broker:
    """A broker that has topics, each with a record."""

    def __init__(self, *topics: str) -> None:
        self.topics = set(topics)

    def names(self) -> set[str]:
        return self.topics

    def ends(self, names: list[str]) -> dict[tuple[str, int], tuple[int, int]]:
        return {(name, 0): (0, 1) for name in names if name in self.topics}


def refused(there: set[str], names: list[str], fresh: list[str]) -> SourceError:
    with pytest.raises(SourceError) as caught:
        refuse_used(cast("Kafka", Broker(*there)), names, fresh)
    return caught.value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TableId("sales", "eu_orders"), TableId("sales_eu", "orders")),
        (TableId("sales", "eu.orders"), TableId("sales", "eu_orders")),
        (TableId("public", "a b"), TableId("public", "a,b")),
    ],
)
def test_tables_of_one_source(one: TableId, other: TableId) -> None:
    (found,) = shared_topics([one, TableId("public", "t"), other])
    assert (found.code, found.table) == ("SOURCE_TOPIC_SHARED", other)
    assert f"{one} and {other}" in found.message


def test_a_table_that_comes_later() -> None:
    kept, new = "shop.sales.eu_orders", "shop.sales_eu.orders"
    error = refused({kept}, [kept, new], [new])
    assert error.code == "SOURCE_TOPIC_SHARED"
    assert kept in error.message
    assert new in error.message


def test_a_table_of_another_source() -> None:
    there, name = "shop.a_b.c", "shop_a.b.c"
    error = refused({there, "else"}, [name], [name])
    assert error.code == "SOURCE_TOPIC_SHARED"
    assert there in error.message
    assert name in error.message


def test_topics_that_are_ones_own_and_have_records_are_told_as_such() -> None:
    assert refused({"shop.a.b"}, ["shop.a.b"], ["shop.a.b"]).code == "SOURCE_TOPICS_EXIST"
    refuse_used(cast("Kafka", Broker("shop.a.b", "other")), ["shop.a.b", "shop.a.c"], ["shop.a.c"])
