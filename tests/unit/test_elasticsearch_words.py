"""What Elasticsearch's words mean, and how its names are made; no server needed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.outcome import APPLIED, STALE, Deferred, Outcome, Rejected
from headrace.model.schema import LogicalType, TableId
from sinks.contract import table
from sinks.elasticsearch.bulk import outcome_of, worst
from sinks.elasticsearch.mapping import properties
from sinks.elasticsearch.names import alias_of, field_of, progress_alias, tombstones_of

names = st.text(min_size=1, max_size=63) | st.sampled_from(
    ["Orders", "orders", "a-b", "b-c", "_x", "%2d", "ä" * 63, "a.b", "A"]
)
LEGAL_INDEX = re.compile(r'^[^\\/*?"<>| ,#:A-Z_+.-][^\\/*?"<>| ,#:A-Z]*$')


@given(names, names, names, names)
def test_tables_never_share_an_alias(a: str, b: str, c: str, d: str) -> None:
    one, other = TableId(a, b), TableId(c, d)
    assert (alias_of("p-", one) == alias_of("p-", other)) == (one == other)


@given(st.sampled_from(["", "shop-"]), names, names)
def test_an_alias_is_a_legal_name_and_none_of_our_own(prefix: str, schema: str, name: str) -> None:
    alias = alias_of(prefix, TableId(schema, name))
    assert LEGAL_INDEX.match(alias)
    assert len(f"{tombstones_of(alias)}1".encode()) <= 255
    assert alias.removeprefix(prefix).count("-") == 1
    assert alias != progress_alias(prefix)


@pytest.mark.parametrize(
    ("table_id", "alias"),
    [
        (TableId("public", "orders"), "shop-public-orders"),
        (TableId("public", "order_items"), "shop-public-order_items"),
        (TableId("Sales", "Order-Lines"), "shop-%53ales-%4frder%2d%4cines"),
        (TableId("public", "_hidden"), "shop-public-%5fhidden"),
    ],
)
def test_aliases_are_readable(table_id: TableId, alias: str) -> None:
    assert alias_of("shop-", table_id) == alias


@given(names, names)
def test_columns_never_share_a_field(one: str, other: str) -> None:
    assert (field_of(one) == field_of(other)) == (one == other)
    assert not field_of(one).startswith("_")
    assert "." not in field_of(one)


def test_every_type_has_a_field() -> None:
    schema = table("all", {kind.value: kind for kind in LogicalType}, ["int64"])
    assert properties(schema).keys() == {kind.value for kind in LogicalType}


@pytest.mark.parametrize(
    ("item", "outcome"),
    [
        ({"status": 200}, APPLIED),
        ({"status": 201}, APPLIED),
        ({"status": 404}, APPLIED),
        ({"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "…"}}, STALE),
        ({"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "full"}}, Deferred),
        ({"status": 500, "error": {"type": "already_closed_exception", "reason": "dying"}}, Deferred),
        ({"status": 404, "error": {"type": "shard_not_found_exception", "reason": "gone"}}, Deferred),
        ({"status": 400, "error": {"type": "illegal_argument_exception", "reason": "no"}}, Rejected),
    ],
)
def test_what_becomes_of_an_item(item: dict[str, object], outcome: Outcome | type) -> None:
    result = outcome_of(item)
    assert result == outcome or type(result) is outcome


@pytest.mark.parametrize(
    ("kind", "reason", "kept"),
    [
        (
            "document_parsing_exception",
            "failed to parse field [n] of type [long] in document. Preview of field's value: 's3cret'",
            "field “n” of type long",
        ),
        (
            "illegal_argument_exception",
            "at least one immense term in field=\"n\" (…). The prefix of the first immense term is: 's3cret'",
            "field “n”",
        ),
        ("illegal_argument_exception", "cannot take [s3cret]", "illegal_argument_exception"),
        (
            "strict_dynamic_mapping_exception",
            "[1:9] mapping set to strict, dynamic introduction of [n] within [_doc] is not allowed",
            "introduction of [n]",
        ),
    ],
)
def test_a_reason_shows_nothing_of_a_value(kind: str, reason: str, kept: str) -> None:
    result = outcome_of({"status": 400, "error": {"type": kind, "reason": reason}})
    assert isinstance(result, Rejected)
    assert kept in result.reason
    assert "s3cret" not in result.reason


@pytest.mark.parametrize(
    ("item", "code", "kind"),
    [
        ({"status": 404, "error": {"type": "index_not_found_exception"}}, "ES_INDEX_MISSING", SinkError),
        ({"status": 403, "error": {"type": "cluster_block_exception"}}, "ES_BLOCKED", SinkUnavailable),
        ({"status": 400, "error": {"type": "index_closed_exception"}}, "ES_BLOCKED", SinkUnavailable),
        ({"status": 403, "error": {"type": "security_exception"}}, "ES_FORBIDDEN", SinkError),
    ],
)
def test_what_concerns_every_item_is_raised(
    item: dict[str, object], code: str, kind: type[SinkError]
) -> None:
    with pytest.raises(SinkError) as caught:
        outcome_of(item)
    assert (caught.value.code, type(caught.value)) == (code, kind)


def test_a_change_of_two_operations_fares_as_the_worse() -> None:
    rejected, deferred = Rejected("X", ""), Deferred(1.0)
    assert worst(APPLIED, STALE) == worst(STALE, APPLIED) == STALE
    assert worst(rejected, deferred) == rejected
    assert worst(APPLIED, APPLIED) == APPLIED
