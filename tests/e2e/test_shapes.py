"""Odd names, odd keys and odd tables through the whole chain, by content, both ways, in every store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.control.registry import Registry
from headrace.control.runs import start as runs
from headrace.model.errors import SourceError
from tests.support.mirror import Mirror, mirrored
from tests.support.plain import differing
from tests.support.shapes import AFTER, BEFORE, KEYS_DECLARED, MENDED, ODD_SCHEMA, UNREADABLE
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    schemas = ("public", ODD_SCHEMA)
    with mirrored(stack, "shapes", *BEFORE, schemas=schemas, keys=KEYS_DECLARED) as made:
        yield made


@pytest.fixture(scope="module")
def changed(mirror: Mirror) -> Mirror:
    """The tables after everything that is told in the log."""
    mirror.settle()
    mirror.database.run(*AFTER)
    return mirror


def assert_equal(mirror: Mirror) -> None:
    mirror.settle()
    assert mirror.letters == []
    assert differing(mirror) == []


def test_the_snapshot_of_odd_tables_arrives(mirror: Mirror) -> None:
    assert_equal(mirror)


def test_what_is_done_to_odd_tables_arrives(changed: Mirror) -> None:
    assert_equal(changed)


@pytest.mark.deep
def test_rows_that_come_or_go_with_their_partition_are_found_by_a_resnapshot(changed: Mirror) -> None:
    mirror = changed
    mirror.database.run(*MENDED)
    tables = [table.schema.table for table in Registry(mirror.context.registry).source(mirror.name).tables]
    assert {table.name for table in tables} >= UNREADABLE
    for table in tables:
        if table.name in UNREADABLE:
            with pytest.raises(SourceError) as caught:
                runs.resnapshot(mirror.context, mirror.name, tables=[table])
            assert caught.value.code == "RESNAPSHOT_UNREADABLE"
    wanted = [table for table in tables if table.name not in UNREADABLE]
    runs.resnapshot(mirror.context, mirror.name, tables=wanted)
    assert_equal(mirror)
