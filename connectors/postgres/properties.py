"""The connector's exact configuration; why each value is what it is stands beside it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from connectors.base import BOUNDED_CONVERTER, Capture, Columns, most_bytes
from connectors.postgres.fence import first_statements
from headrace.model.errors import UsageError
from headrace.model.schema import TableId, TableSchema

__all__ = [
    "CONNECTOR_CLASS",
    "FETCHED_BYTES",
    "FIRST_ROWS",
    "connector_properties",
    "pattern",
    "session_settings",
    "startup_options",
]

CONNECTOR_CLASS = "io.debezium.connector.postgresql.PostgresConnector"
FETCHED_BYTES = 64 << 20
"""What the driver takes of all rows that it fetches at once, as it counts; more ends its session."""
FIRST_ROWS = 4
"""So many rows of a table are fetched at first."""
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_UNSAFE = re.compile(r"[\x00-/:-@\[-^`{-\x7f]")
_DOT = r"\."
_JAVAS_HOSTS = re.compile(r"[A-Za-z0-9._-]+")
"""What Debezium takes for a host; a number of IPv6 is none."""
_TLS = {
    "sslmode": "database.sslmode",
    "sslrootcert": "database.sslrootcert",
    "sslcert": "database.sslcert",
    "sslkey": "database.sslkey",
}


def pattern(*parts: str) -> str:
    """Return the regular expression that matches exactly the dotted name of ``parts``.

    The connector matches without regard to case unless told otherwise, splits lists at commas, trims them
    and takes backslashes for its own; so nothing but letters, digits and ``_`` stands for itself.
    """
    named = [_UNSAFE.sub(lambda match: f"\\x{ord(match.group()):02X}", part) for part in parts]
    return f"(?-i:{_DOT.join(named)})"


def _declared_key(schema: TableSchema) -> str:
    """Return what tells the connector a table's key; colons and semicolons separate its parts."""
    table, *columns = (
        pattern(*parts).removeprefix("(?-i:").removesuffix(")")
        for parts in ((schema.table.schema, schema.table.name), *((name,) for name in schema.key))
    )
    return f"(?-i){table}:{','.join(columns)}"


def connector_properties(
    capture: Capture,
    address: Mapping[str, str],
    *,
    version: int,
    unread: Collection[TableId] = (),
    leave_out: Columns | None = None,
) -> dict[str, str]:
    """Return the properties of the Debezium connector.

    Args:
        capture: What to capture.
        address: libpq parameters of the database; its password is not used.
        version: Of the server, as ``server_version_num`` tells it.
        unread: Tables that the initial snapshot leaves out.
        leave_out: Columns that somebody left out, under each name that the log may have of them.

    Raises:
        UsageError: When the address is a socket path, which Java cannot reach (``SOURCE_URL_INVALID``),
            or the client's key has a passphrase.
    """
    host = _host(address)
    if host.startswith("/") or "," in host:
        raise UsageError(
            "The connector needs one host name, not a socket directory or a list.",
            code="SOURCE_URL_INVALID",
            hint="Write postgres://user:password@host:port/database.",
        )
    if not _JAVAS_HOSTS.fullmatch(host):
        raise UsageError(
            f"The connector takes no host {host}: only letters, digits, dots, dashes and underscores.",
            code="SOURCE_URL_INVALID",
            hint="Give the server a name, and write postgres://user:password@name:port/database.",
        )
    if "sslpassword" in address:
        raise UsageError(
            "The passphrase of a client key (sslpassword) cannot be kept.",
            code="SOURCE_URL_INVALID",
            hint="Use a key file without passphrase that only its owner may read.",
        )
    return {
        "connector.class": CONNECTOR_CLASS,
        "tasks.max": "1",
        **_database(address, host, capture, version),
        **_scope(capture, unread, leave_out or {}),
        **_stream(capture, failover_slots=version >= FAILOVER_SLOTS),
        **_values(capture),
        **_kafka(capture),
    }


def _host(address: Mapping[str, str]) -> str:
    """Return where Java is to go: libpq asks nobody for the name when it is told the number as well.

    A certificate that is compared with the name is the exception.
    """
    number, name = address.get("hostaddr"), address.get("host", "localhost")
    return number if number and address.get("sslmode") != "verify-full" else name


# What role, database and server say is not heeded. Intervals in another style are read as zero years, doubles
# are rounded, binary values in another format and money in another country's notation stop the connector, and
# rows that row security hides would be taken for rows that are gone. A limit of time would end the first
# snapshot, which would then begin again and again; and a heartbeat is a write.
_SETTINGS = {
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
    "row_security": "off",
    "default_transaction_read_only": "off",
    # A reader of ours in the application's isolation level could end the application's transactions.
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    # A heartbeat waits for no standby.
    "synchronous_commit": "local",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "exit_on_error": "off",
    "search_path": '"$user",public',
    "tcp_user_timeout": "0",
    "idle_session_timeout": "0",
    "wal_sender_timeout": "60s",
    # The rights are those of the role that connects: only that role can be one that replicates.
    "role": "none",
}
_SETTINGS_SINCE = {170_000: {"transaction_timeout": "0"}}
FAILOVER_SLOTS = 170_000
"""The first version whose slots survive a failover."""


def session_settings(version: int) -> dict[str, str]:
    """Return what the connector asks for its sessions when it connects to a server of this version."""
    later = [settings for since, settings in _SETTINGS_SINCE.items() if version >= since]
    return {**_SETTINGS, **{name: value for settings in later for name, value in settings.items()}}


def startup_options(settings: Mapping[str, str]) -> str:
    """Return the settings as a client tells them when it connects."""
    told = {name: value.replace(" ", r"\ ") for name, value in settings.items()}
    return " ".join(f"-c {name}={value}" for name, value in told.items())


def _database(address: Mapping[str, str], host: str, capture: Capture, version: int) -> dict[str, str]:
    name = address.get("dbname", address["user"])
    properties = {
        "database.hostname": host,
        "database.port": address.get("port", "5432"),
        "database.user": address["user"],
        "database.dbname": name,
        "database.sslmode": "prefer",
        "driver.options": startup_options(session_settings(version)),
        # A run compares keys that hold a time with texts. Without a type of its own a text becomes a time.
        "driver.stringtype": "unspecified",
        "database.initial.statements": first_statements(
            capture.connector, name, capture.timeline, capture.system
        ),
        **{_TLS[name]: value for name, value in address.items() if name in _TLS},
    }
    return {**properties, "database.password": capture.password} if capture.password else properties


def _scope(capture: Capture, unread: Collection[TableId], leave_out: Columns) -> dict[str, str]:
    tables: Sequence[TableId] = [
        *(schema.table for schema in capture.tables),
        capture.signals,
        capture.heartbeat,
    ]
    read = [pattern(table.schema, table.name) for table in tables if table not in unread]
    uncaptured = [
        (schema.table, column)
        for schema in capture.tables
        for column in (*schema.extra.get("excluded", ()), *(c.name for c in schema.columns if c.computed))
    ]
    # Also under names that are gone: the connector may be behind. Another column may have one of them now.
    captured = {schema.table: schema.by_name.keys() for schema in capture.tables}
    uncaptured += [
        (table, column)
        for table, columns in leave_out.items()
        for column in columns
        if column not in captured.get(table, ())
    ]
    excluded = [pattern(table.schema, table.name, column) for table, column in dict.fromkeys(uncaptured)]
    declared = [_declared_key(schema) for schema in capture.tables if schema.declared]
    return {
        "topic.prefix": capture.source,
        "table.include.list": ",".join(pattern(table.schema, table.name) for table in tables),
        **({"snapshot.include.collection.list": ",".join(read)} if unread else {}),
        **({"column.exclude.list": ",".join(excluded)} if excluded else {}),
        **({"message.key.columns": ";".join(declared)} if declared else {}),
    }


def _stream(capture: Capture, *, failover_slots: bool) -> dict[str, str]:
    settings, beat = capture.settings, capture.heartbeat
    return {
        "plugin.name": "pgoutput",
        "slot.name": capture.connector,
        **({"slot.failover": "true"} if failover_slots else {}),
        "publication.name": capture.connector,
        "publication.autocreate.mode": "disabled",  # setup() made it, in one transaction
        # What other programs write with pg_logical_emit_message is not for us, and may be of any size.
        "message.prefix.include.list": "(?-i:headrace)",
        "snapshot.mode": "initial",  # any other mode hides a gap in history
        # Rows may be of any size, and all sources share the worker's memory. The largest row so far tells the
        # driver how many are fetched next. More bytes than its buffer takes end the session, and small rows
        # promise nothing of those that follow: as many of two mebibytes fit as are fetched at all.
        "snapshot.fetch.size": str(FIRST_ROWS),
        "driver.adaptiveFetch": "true",
        "driver.adaptiveFetchMaximum": "32",
        "driver.maxResultBuffer": str(FETCHED_BYTES),
        "snapshot.max.threads": str(settings.snapshot_threads),
        # A table is read by one thread: between the parts of one, keys with a time in them are rounded.
        "legacy.snapshot.max.threads": "true",
        "incremental.snapshot.chunk.size": str(settings.snapshot_chunk_rows),
        "offset.mismatch.strategy": "trust_offset",  # a slot ahead of the offset is an error, not a skip
        # A poll is a transaction of the producer's. The default of 500 alone costs up to a second a change.
        "poll.interval.ms": "25",
        "max.batch.size": "2048",
        "max.queue.size": "8192",
        "max.queue.size.in.bytes": str(64 * 1024 * 1024),
        "heartbeat.interval.ms": str(settings.heartbeat_ms),
        "heartbeat.action.query": f"UPDATE {beat.quoted} SET at = clock_timestamp() WHERE id = 1",  # noqa: S608 - our own quoted name
        "signal.enabled.channels": "source",
        "signal.data.collection": str(capture.signals),
        "signal.poll.interval.ms": "1000",
        "notification.enabled.channels": "sink,log",
        "notification.sink.topic.name": capture.notifications,
        "errors.max.retries": "-1",
        "retriable.restart.connector.wait.ms": "2000",
    }


def _values(capture: Capture) -> dict[str, str]:
    return {
        "decimal.handling.mode": "string",
        "time.precision.mode": "microseconds",
        "interval.handling.mode": "string",
        "binary.handling.mode": "bytes",  # in JSON base64 as well; with `base64` an unchanged value is NULL
        "hstore.handling.mode": "json",
        "unavailable.value.placeholder": capture.placeholder,
        "skipped.operations": "none",  # the default drops TRUNCATE silently
        "tombstones.on.delete": "false",  # topics are not compacted
        "key.converter": _JSON,
        "key.converter.schemas.enable": "false",
        "key.converter.replace.null.with.default": "false",
        "value.converter": BOUNDED_CONVERTER if capture.settings.bounded else _JSON,
        "value.converter.max.bytes": str(capture.settings.max_record_bytes),
        "value.converter.schemas.enable": "false",
        "value.converter.replace.null.with.default": "false",  # else NULL arrives as the column's default
    }


_BUFFER_BYTES = 32 << 20
"""What a producer buffers when nobody says more."""


def _kafka(capture: Capture) -> dict[str, str]:
    most = most_bytes(capture.settings)
    return {
        "exactly.once.support": "required",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "-1",
        "topic.creation.default.cleanup.policy": "delete",
        "topic.creation.default.retention.ms": str(capture.settings.retention_ms),
        "producer.override.linger.ms": "2",
        "producer.override.batch.size": str(256 * 1024),
        "producer.override.compression.type": "lz4",
        "producer.override.max.request.size": str(most),
        # A record that is larger than the whole buffer ends the task, at every start.
        "producer.override.buffer.memory": str(max(_BUFFER_BYTES, most)),
    }
