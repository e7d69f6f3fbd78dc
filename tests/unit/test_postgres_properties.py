"""The connector's configuration, from a capture alone."""

from __future__ import annotations

import re
import socket
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.pq import Conninfo

from connectors.base import Capture, topic_of
from connectors.postgres import PostgresSource
from connectors.postgres.address import address, check_address, parameters
from connectors.postgres.properties import connector_properties
from connectors.postgres.types import is_list, logical_type, numeric_digits
from connectors.registry import build, kind_of
from headrace.config.source import SourceSettings
from headrace.model.errors import UsageError
from headrace.model.schema import Column, LogicalType, TableId, TableSchema

ADDRESS = {"host": "db.example", "port": "5433", "user": "me", "dbname": "shop", "password": "c4nary"}


def _capture(*tables: TableId, excluded: tuple[str, ...] = ()) -> Capture:
    schemas = tuple(
        TableSchema(table, (Column("id", LogicalType.INT64),), ("id",), extra={"excluded": excluded})
        for table in tables
    )
    return Capture("shop", schemas, "__mark", "${file:/s/shop.properties:password}")


def _properties(capture: Capture, **address: str) -> dict[str, str]:
    return connector_properties(capture, {**ADDRESS, **address}, version=180_000)


def test_the_password_is_a_reference() -> None:
    properties = _properties(_capture(TableId("public", "orders")))
    assert properties["database.password"] == "${file:/s/shop.properties:password}"
    assert "c4nary" not in str(properties)


def test_exactly_the_captured_tables_match() -> None:
    tables = [TableId("public", "orders"), TableId("odd.schema", "a,b\\c+ "), TableId("public", "ä")]
    include = _properties(_capture(*tables))["table.include.list"].split(",")
    assert len(include) == 5
    assert all(pattern == pattern.strip() for pattern in include)
    for table in [*tables, TableId("headrace", "shop_signal"), TableId("headrace", "shop_heartbeat")]:
        assert sum(bool(re.fullmatch(pattern, str(table))) for pattern in include) == 1
    for other in ("publicXorders", "public.Orders"):
        assert not any(re.fullmatch(pattern, other, re.IGNORECASE) for pattern in include)


def test_excluded_columns_are_named_only_when_there_are_some() -> None:
    assert "column.exclude.list" not in _properties(_capture(TableId("public", "t")))
    excluded = _properties(_capture(TableId("public", "t"), excluded=("total",)))["column.exclude.list"]
    assert excluded == r"(?-i:public\.t\.total)"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("plugin.name", "pgoutput"),
        ("publication.autocreate.mode", "disabled"),
        ("snapshot.mode", "initial"),
        ("poll.interval.ms", "25"),
        ("skipped.operations", "none"),
        ("decimal.handling.mode", "string"),
        ("value.converter.replace.null.with.default", "false"),
        ("exactly.once.support", "required"),
        ("unavailable.value.placeholder", "__mark"),
        ("slot.failover", "true"),
        ("message.prefix.include.list", "(?-i:headrace)"),
    ],
)
def test_defaults_that_lose_or_delay_changes_are_overruled(name: str, value: str) -> None:
    assert _properties(_capture(TableId("public", "t")))[name] == value


@pytest.mark.parametrize("host", ["/var/run/postgresql", "a,b"])
def test_an_address_java_cannot_reach_is_refused(host: str) -> None:
    with pytest.raises(UsageError) as caught:
        _properties(_capture(TableId("public", "t")), host=host)
    assert caught.value.code == "SOURCE_URL_INVALID"


def test_no_property_of_the_connector_comes_with_an_address() -> None:
    """G8: only libpq reads an address, and only what it says of TLS is passed on."""
    named = {
        "connector.class": "evil.Connector",
        "transforms": "x",
        "database.initial.statements": "DROP TABLE t",
        "producer.override.sasl.jaas.config": "com.sun.security.auth.module.JndiLoginModule required;",
        "options": "-c IntervalStyle=iso_8601",
        "passfile": "/etc/shadow",
        "service": "x",
        "sslmode": "require",
    }
    capture = _capture(TableId("public", "t"))
    plain, told = _properties(capture), _properties(capture, **named)
    assert {name: value for name, value in told.items() if plain.get(name) != value} == {
        "database.sslmode": "require"
    }
    for name in ("connector.class", "transforms", "database.initial.statements"):
        with pytest.raises(UsageError) as caught:
            PostgresSource(f"postgres://me@db/shop?{name}=evil")
        assert caught.value.code == "SOURCE_URL_INVALID"


def test_derived_names_are_legal_however_long_the_source_name() -> None:
    capture = Capture("x" * 31, (), "", "")
    for name in (capture.connector, capture.signals.name, capture.heartbeat.name):
        assert len(name) <= 63
        assert re.fullmatch(r"[a-z0-9_]+", name)


def test_a_topic_name_keeps_to_what_kafka_allows() -> None:
    assert topic_of("shop", TableId("public", "order items/ü")) == "shop.public.order_items__"
    assert topic_of("shop", TableId("public", "🙂")) == "shop.public.__"


def test_the_address_shows_no_password() -> None:
    source = PostgresSource("postgres://me:c4nary@db:5433/shop?sslmode=require&password=c4nary")
    assert source.address == "postgresql://me@db:5433/shop?sslmode=require"
    again = PostgresSource(source.address, "c4nary")
    assert again.address == source.address


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
hosts = st.one_of(
    st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,9}\.?){1,3}", fullmatch=True),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(str),
    st.just("fe80::1%eth0"),
)


@given(
    st.fixed_dictionaries(
        {"host": hosts, "user": texts, "dbname": texts, "port": st.integers(1, 65535).map(str)},
        optional={"hostaddr": st.ip_addresses().map(str), "sslrootcert": texts},
    )
)
def test_an_address_reads_back_as_it_was_given(known: dict[str, str]) -> None:
    assert parameters(address(known)) == known


@pytest.mark.parametrize(
    ("known", "codes"),
    [
        ({"host": "db"}, set()),
        ({"host": "db,other"}, {"SOURCE_URL_INVALID"}),
        ({"host": "db", "sslrootcert": "system"}, {"SOURCE_URL_INVALID"}),
        ({"host": "db", "channel_binding": "require"}, {"SOURCE_URL_PARTLY"}),
        ({"host": "db", "channel_binding": "prefer", "sslnegotiation": "postgres"}, set()),
        ({"host": "db", "options": "-c role=other"}, {"SOURCE_URL_PARTLY"}),
        ({"host": "db", "target_session_attrs": "read-write"}, {"SOURCE_URL_PARTLY"}),
        ({"host": "db", "target_session_attrs": "any", "gssencmode": "prefer"}, set()),
        ({"host": "db", "load_balance_hosts": "random"}, {"SOURCE_URL_PARTLY"}),
        ({"host": "db", "gssencmode": "require"}, {"SOURCE_URL_PARTLY"}),
        ({"host": "db", "sslcertmode": "require"}, {"SOURCE_URL_PARTLY"}),
        ({"host": "db", "sslsni": "0"}, {"SOURCE_URL_PARTLY"}),
        ({"host": "db", "ssl_min_protocol_version": "TLSv1.3"}, {"SOURCE_URL_PARTLY"}),
        ({"host": "db", "ssl_min_protocol_version": "TLSv1.2"}, set()),
        ({"host": "db", "min_protocol_version": "3.2"}, {"SOURCE_URL_PARTLY"}),
    ],
)
def test_what_only_libpq_heeds_of_an_address_is_told(known: dict[str, str], codes: set[str]) -> None:
    assert {found.code for found in check_address(known)} == codes


NEITHER = """
host hostaddr port dbname user password passfile service sslmode sslcert sslkey sslpassword sslrootcert
connect_timeout client_encoding application_name fallback_application_name replication tcp_user_timeout
keepalives keepalives_idle keepalives_interval keepalives_count requirepeer sslcompression sslkeylogfile
ssl_max_protocol_version max_protocol_version krbsrvname gsslib gssdelegation scram_client_key
scram_server_key oauth_issuer oauth_client_id oauth_client_secret oauth_scope
"""
"""The connector is told of them, is refused by the server without, or loses nothing: of a socket, which it
does not take, of speed, of our own sessions."""


KNOWN = {one.keyword.decode() for one in Conninfo.get_defaults()}


@pytest.mark.parametrize("name", sorted(KNOWN - set(NEITHER.split())))
def test_every_other_parameter_that_this_libpq_knows_is_told(name: str) -> None:
    """One that a later libpq brings fails here until somebody has thought about it."""
    (found,) = check_address({"host": "db", name: "something"})
    assert found.code == "SOURCE_URL_PARTLY"
    assert name in found.message


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        (["10.0.0.1"], False),
        (["10.0.0.1", "fd00::1"], False),
        (["127.0.0.1", "127.0.0.2", "::1"], False),
        (["10.0.0.1", "10.0.0.2"], True),
        (["fd00::1", "fd00::2"], True),
    ],
)
def test_a_name_that_leads_to_several_servers_is_told(
    monkeypatch: pytest.MonkeyPatch, numbers: list[str], told: bool
) -> None:
    """Not one that leads to a server by both kinds of number."""
    kinds = {False: socket.AF_INET, True: socket.AF_INET6}
    found = [(kinds[":" in one], socket.SOCK_STREAM, 6, "", (one, 5432)) for one in numbers]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert [one.code for one in check_address({"host": "db"})] == ["SOURCE_HOST_SEVERAL"] * told
    assert not list(check_address({"host": "db", "hostaddr": "10.0.0.1"}))


@pytest.mark.parametrize("url", ["mysql://x/y", "nonsense", "", "shop"])
def test_another_kind_of_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        kind_of(url)
    assert caught.value.code == "SOURCE_URL_INVALID"


def test_an_unreadable_url_and_an_unknown_kind_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="cannot be read") as caught:
        build("postgres", "postgres://me:c4nary@h:port/x?nonsense=1")
    assert "c4nary" not in str(caught.value)
    with pytest.raises(UsageError, match="no source kind"):
        build("oracle", "x")


@pytest.mark.parametrize(
    ("name", "kind", "meaning"),
    [
        ("int8", "b", LogicalType.INT64),
        ("citext", "b", LogicalType.TEXT),
        ("tier", "e", LogicalType.ENUM),
        ("jsonb", "b", LogicalType.JSON),
        ("bit", "b", None),
        ("point", "b", None),
        ("address", "c", None),
        ("vector", "e", None),
        ("geometry", "b", None),
    ],
)
def test_a_type_has_a_meaning_or_is_left_out(name: str, kind: str, meaning: LogicalType | None) -> None:
    assert logical_type(name, kind) is meaning


def test_arrays_are_taken_only_of_elements_that_arrive_whole() -> None:
    assert logical_type("text", "b", element=True) is LogicalType.TEXT
    assert logical_type("mood", "e", element=True) is None
    assert logical_type("mood", "e", element=True, full=True) is LogicalType.ENUM
    assert logical_type("numeric", "b", element=True) is None
    assert logical_type("numeric", "b", element=True, full=True) is LogicalType.NUMERIC
    assert logical_type("time", "b", element=True, full=True) is None
    assert logical_type("vector", "b", element=True, full=True) is None


def test_types_whose_large_values_go_missing_are_taken_only_with_the_old_row() -> None:
    assert logical_type("vector", "b") is None
    assert logical_type("vector", "b", full=True) is LogicalType.FLOAT32
    assert is_list("vector")
    assert logical_type("geometry", "b", full=True) is LogicalType.OTHER
    assert not is_list("geometry")


@pytest.mark.parametrize(
    ("typmod", "meaning"), [(-1, None), (1, LogicalType.OTHER), (32_767, LogicalType.OTHER), (32_768, None)]
)
def test_a_sparse_vector_is_taken_when_its_dimensions_can_be_counted(
    typmod: int, meaning: LogicalType | None
) -> None:
    assert logical_type("sparsevec", "b", full=True, typmod=typmod) is meaning


@pytest.mark.parametrize(
    ("typmod", "digits"),
    [(-1, (None, None)), ((12 << 16 | 2) + 4, (12, 2)), ((3 << 16 | (-2 & 0x7FF)) + 4, (3, -2))],
)
def test_numeric_digits(typmod: int, digits: tuple[int | None, int | None]) -> None:
    assert numeric_digits(typmod) == digits


@pytest.mark.parametrize("most", [1 << 20, 16 << 20, 32 << 20, 64 << 20])
def test_the_largest_record_fits_what_the_producer_buffers(most: int) -> None:
    """The producer refuses a record for good that is larger than all that it may buffer."""
    capture = replace(_capture(TableId("public", "t")), settings=SourceSettings(max_record_bytes=most))
    properties = _properties(capture)
    largest = int(properties["producer.override.max.request.size"])
    assert most < largest <= int(properties["producer.override.buffer.memory"])


def test_records_are_bounded_where_the_worker_can_and_fit_the_producer() -> None:
    capture = replace(_capture(TableId("public", "t")), settings=SourceSettings(max_record_bytes=2 << 20))
    properties = _properties(capture)
    assert properties["value.converter"] == "headrace.connect.BoundedJsonConverter"
    assert properties["value.converter.max.bytes"] == str(2 << 20)
    assert int(properties["producer.override.max.request.size"]) > 2 << 20
    without = replace(capture, settings=SourceSettings(bounded=False))
    assert _properties(without)["value.converter"].endswith(".JsonConverter")
