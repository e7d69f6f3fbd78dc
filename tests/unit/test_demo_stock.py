"""The seed: enough of it, the same for the same seed, with the content that breaks careless replication."""

from __future__ import annotations

from random import Random
from typing import Any

from headrace.demo.copytext import blocks
from headrace.demo.stock import TABLES, Sizes, Stock

SMALL = Sizes().scaled(0.02)


def written(seed: int, sizes: Sizes) -> dict[str, bytes]:
    stock = Stock(Random(seed), sizes)
    return {table: b"".join(blocks(stock.rows(table))) for table in TABLES}


def rows(table: str) -> list[Any]:
    stock = Stock(Random(1), SMALL)
    return [list(stock.rows(name)) for name in TABLES][TABLES.index(table)]


def test_the_seed_has_at_least_fifty_thousand_rows() -> None:
    assert Sizes().total >= 50_000


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    assert written(7, SMALL) == written(7, SMALL)
    assert written(7, SMALL)["products"] != written(8, SMALL)["products"]


def test_as_many_rows_as_announced() -> None:
    for table, text in written(1, SMALL).items():
        assert text.count(b"\n") == getattr(SMALL, table), table


def test_composite_keys_are_unique() -> None:
    keys = [(order, line) for order, line, *_ in rows("order_items")]
    assert len(set(keys)) == len(keys)
    assert {line for _, line in keys} >= {1, 2}


def test_a_part_of_the_descriptions_is_long() -> None:
    lengths = [len(row[3] or "") for row in rows("products")]
    assert sum(4_000 <= length <= 9_000 for length in lengths) >= len(lengths) // 6


def test_copy_text_escapes_what_copy_reads_as_syntax() -> None:
    text = b"".join(blocks([["a\tb\nc\\N", None, True, [None, 'x"\\', "NULL"], {"k": "\n"}, b"\x00\xff"]]))
    assert text == (b'a\\tb\\nc\\\\N\t\\N\tt\t{NULL,"x\\\\"\\\\\\\\","NULL"}\t{"k": "\\\\n"}\t\\\\x00ff\n')
