"""What is told of a table whose key has changed: it is taken out and in again, and all else stays."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.control.registry import SinkEntry
from headrace.control.remedies import another_key
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry
from tests.unit.test_hints import wrong

A = TableId("public", "a")
AGAIN = "headrace source tables remove shop public.a --purge && headrace source tables add shop public.a"


def told(tables: str, sinks: dict[str, str], *between: str) -> str:
    columns = (Column("id", LogicalType.INT32),)
    source = source_entry("shop", [TableSchema(TableId("public", t), columns, ("id",)) for t in tables])
    entries = [_sink(name, mine) for name, mine in sinks.items()]
    return another_key(source, entries, A, between=between)


def _sink(name: str, tables: str) -> SinkEntry:
    kept: dict[str, Any] = {f"shop.public.{table}": {} for table in tables}
    return SinkEntry(name=name, kind="memory", source="shop", settings={}, tables=kept)


@pytest.mark.parametrize(
    ("sinks", "remedy"),
    [
        ({}, AGAIN),
        ({"one": "abc", "two": "abc"}, AGAIN),
        ({"one": "abc", "two": "ab"}, f"{AGAIN} --sink one --sink two"),
        ({"one": "abc", "two": "bc"}, f"{AGAIN} --sink one"),
        ({"one": "abc", "two": "c"}, AGAIN),
        ({"one": "abc", "two": "a"}, f"headrace sink remove two --purge && {AGAIN}  # then add two again"),
    ],
)
def test_a_table_is_taken_out_and_in_again_at_each_sink_that_mirrors_it(
    sinks: dict[str, str], remedy: str
) -> None:
    assert told("abc", sinks) == remedy
    for command in remedy.partition("  #")[0].split(" && "):
        assert not wrong(command.removeprefix("headrace "))


def test_a_recovery_comes_between() -> None:
    first, second = AGAIN.split(" && ")
    assert (
        told("ab", {"one": "ab"}, "headrace recover shop") == f"{first} && headrace recover shop && {second}"
    )


def test_the_only_table_of_a_source_goes_with_it() -> None:
    assert told("a", {"one": "a", "two": "a"}) == (
        "headrace sink remove one --purge && headrace sink remove two --purge && headrace source remove shop"
        "  # then add them again"
    )
