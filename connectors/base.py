"""What a source is: the protocol every kind of database fulfils for the control plane."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from connectors.row_count import RowCount
from headrace.config.source import SourceSettings
from headrace.model.finding import Finding
from headrace.model.key import Key
from headrace.model.schema import TableId, TableSchema

if TYPE_CHECKING:
    from connectors.watch import Watch

__all__ = [
    "BOUNDED_CONVERTER",
    "WHILE_AWAY",
    "Capture",
    "Hold",
    "Keys",
    "Left",
    "Source",
    "Wait",
    "Weakness",
    "most_bytes",
    "topic_of",
]

BOUNDED_CONVERTER = "headrace.connect.BoundedJsonConverter"
"""The class by which a Connect worker keeps records within their limit; see ``connectors/java``."""

_AROUND_BYTES = 64 << 10
"""Room for a record's key and headers beside its value."""

Columns = Mapping[TableId, Collection[str]]
"""Columns of tables."""

Keys = Mapping[TableId, Sequence[str]]
"""The columns that a user declares to identify the rows of a table, in place of its primary key."""

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def most_bytes(settings: SourceSettings) -> int:
    """Return how large a message may be on its way through Kafka."""
    return settings.max_record_bytes + _AROUND_BYTES


def topic_of(prefix: str, table: TableId) -> str:
    """Return the topic of a table: what Kafka does not allow in a name becomes ``_``.

    The connector replaces UTF-16 units, of which a character beyond U+FFFF has two.
    """
    name = f"{prefix}.{table.schema}.{table.name}"
    return "".join(char if char in _LEGAL else "_" * (1 + (char > "\uffff")) for char in name)


@dataclass(frozen=True, slots=True)
class Capture:
    """What is taken from a database, and the names under which.

    Args:
        source: The source's name; also the prefix of its topics.
        tables: What to capture. ``extra["excluded"]`` names columns that are not.
        placeholder: What the connector sends for a value it does not know (unchanged TOAST).
        password: What the connector's configuration holds in place of the password.
        settings: How to read.
        timeline: The only one of the database's log that the connector may read; None: every one.
        system: The only database cluster that it may read; None when that does not tell its identity.
    """

    source: str
    tables: tuple[TableSchema, ...]
    placeholder: str
    password: str
    settings: SourceSettings = field(default_factory=SourceSettings)
    timeline: int | None = None
    system: str | None = None

    @property
    def connector(self) -> str:
        """Return the name of the connector, the slot and the publication."""
        return f"headrace_{self.source}"

    @property
    def signals(self) -> TableId:
        """Return the table through which the connector takes orders."""
        return TableId("headrace", f"{self.source}_signal")

    @property
    def heartbeat(self) -> TableId:
        """Return the table whose one row the connector touches to prove that all is delivered."""
        return TableId("headrace", f"{self.source}_heartbeat")

    @property
    def notifications(self) -> str:
        """Return the topic on which the connector tells how snapshots go."""
        return f"{self.source}.headrace.notifications"

    def topic(self, table: TableId) -> str:
        """Return the table's topic."""
        return topic_of(self.source, table)


WHILE_AWAY = frozenset({"SOURCE_WAL_UNBOUNDED", "SOURCE_WAL_SHORT", "SOURCE_SLOT_IDLE"})
"""Codes of what a database does to the slot, or to its disk, while the connector is paused or down."""


@dataclass(frozen=True, slots=True)
class Weakness:
    """Why the log of a table no longer tells all that is captured of it, and what mends that."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Left:
    """What stays when a source goes.

    Args:
        statements: By which somebody with the rights removes it; empty when nothing stays.
        why: Why it stays.
        slot: Whether the slot is among it, and keeps the log until it goes.
        apart: What stays elsewhere, by name: connector and topics of servers that did not answer.
        hint: What has the database let us remove it.
    """

    statements: tuple[str, ...] = ()
    why: str = ""
    slot: bool = False
    apart: tuple[str, ...] = ()
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody of the database for whom the connector waits.

    Args:
        who: In words, with names and seconds.
        ends: The statement that ends it.
    """

    who: str
    ends: str


@dataclass(frozen=True, slots=True)
class Hold:
    """What the database keeps for the connector.

    Args:
        exists: False when the slot is gone: history is lost.
        active: Whether the connector is connected to it.
        lost: Why the slot can no longer deliver everything; empty when it can.
        confirmed: Position in the WAL up to which the connector has confirmed everything; None when unknown.
        held_bytes: WAL kept for the slot, the **slot lag**; None when unknown.
        unconfirmed_bytes: WAL not yet confirmed by the connector; None when unknown.
        spare_bytes: WAL that may still be written before the slot is lost; None without a limit.
        system: Identity of the database cluster, when it tells.
        now_ms: The database's clock, Unix milliseconds.
        uncaptured: Tables of the capture of which the connector is told nothing (any more).
        weakened: Tables whose log no longer tells all.
        flushed: Position up to which the log is on disk; None when unknown.
        timeline: The log's timeline; None when unknown.
        ancestry: Earlier timeline → position at which the log left it; without those it does not tell of.
            None: it could not be asked.
        waits: For whom the connector waits while it makes its slot or reads; empty when nobody asked.
        elsewhere: Whose a slot of the connector's name is, such as “database shop”, when it is not ours.
        barred: Who keeps the connector from its slot, as far as the database tells; None when nobody does.
        harms: What makes the application wait for the connector now, as the check would tell it.
    """

    exists: bool
    active: bool
    lost: str
    confirmed: int | None
    held_bytes: int | None
    unconfirmed_bytes: int | None
    spare_bytes: int | None
    system: str | None
    now_ms: int
    uncaptured: tuple[TableId, ...] = ()
    weakened: Mapping[TableId, Weakness] = field(default_factory=dict)
    flushed: int | None = None
    timeline: int | None = None
    ancestry: Mapping[int, int] | None = field(default_factory=dict)
    waits: tuple[Wait, ...] = ()
    elsewhere: str = ""
    barred: Wait | None = None
    harms: tuple[Finding, ...] = ()


@runtime_checkable
class Source(Protocol):
    """One database, as the control plane sees it. Connects lazily; every call stands alone.

    Raises:
        SourceError: When the database does not answer or refuses (``SOURCE_UNREACHABLE``, …).
    """

    kind: str
    connector_class: str
    """The Java class of its connector, which Connect must have."""

    @property
    def address(self) -> str:
        """Return the address without its password."""
        ...

    @property
    def resolved(self) -> str:
        """Return the address with what the client took from its environment; without the password."""
        ...

    @property
    def password(self) -> str:
        """Return the password that the client found, also from the environment or a password file."""
        ...

    def tables(self, schemas: Sequence[str]) -> list[TableId]:
        """Return the user tables of the schemas that could be captured, by name."""
        ...

    def preflight(
        self,
        tables: Sequence[TableId],
        keys: Keys | None = None,
        *,
        partitions: int = 1,
        readers: int = 1,
        by_run_mib: int | None = None,
    ) -> list[Finding]:
        """Return everything that speaks for or against capturing ``tables``; changes nothing.

        Args:
            tables: Which.
            keys: The keys that the user declares.
            partitions: Of how many partitions each table's topic is to be.
            readers: How many are to read the first snapshot side by side.
            by_run_mib: From which size on a run reads a table, and not the first snapshot; None: each.
        """
        ...

    def catalogue(self, tables: Sequence[TableId], keys: Keys | None = None) -> list[TableSchema]:
        """Return the tables' columns and keys, in the order asked for."""
        ...

    def refuse_taken(self, capture: Capture) -> None:
        """Refuse names that something else in the database has (``SOURCE_SLOT_TAKEN``); changes nothing."""
        ...

    def setup(self, capture: Capture) -> None:
        """Create what the connector needs in the database; idempotent, all or nothing."""
        ...

    def teardown(self, capture: Capture, system: str | None = None) -> Left:
        """Remove what :meth:`setup` and the connector made, the slot first; idempotent.

        What the database does not let us remove is left, and told.

        Args:
            capture: What was captured.
            system: Identity of the only cluster that this is to be done in; None: any.

        Raises:
            SourceError: Also where the address leads to a server that has no say over the slot
                (``SOURCE_STANDBY``, ``SOURCE_ANOTHER_CLUSTER``).
        """
        ...

    def check_anew(self, capture: Capture) -> list[Finding]:
        """Return what speaks for or against :meth:`teardown` and then :meth:`setup`; changes nothing."""
        ...

    def leftovers(self, capture: Capture) -> tuple[str, ...]:
        """Return the statements by which a person does what :meth:`teardown` does; asks no database."""
        ...

    def properties(self, capture: Capture, unread: Collection[TableId] = ()) -> dict[str, str]:
        """Return the connector's exact configuration; without the password.

        Args:
            capture: What to capture.
            unread: Tables that the initial snapshot leaves to a run.
        """
        ...

    def fenced(self, capture: Capture, config: Mapping[str, str], timeline: int | None) -> dict[str, str]:
        """Return the ``config`` with which it reads this timeline only; None: any, of any server."""
        ...

    def large(self, schemas: Sequence[TableSchema], mib: int) -> tuple[TableId, ...]:
        """Return the tables that take at least ``mib`` MiB and that a run can read."""
        ...

    def publish(self, capture: Capture) -> None:
        """Let the connector be told of all the capture's tables again; all of them exist."""
        ...

    def hold(self, capture: Capture, *, loading: bool = False) -> Hold:
        """Return what the database keeps for the connector; while it is ``loading``, for whom it waits."""
        ...

    def watch(self, capture: Capture) -> Watch:
        """Return what looks at the database again and again, on a connection of its own."""
        ...

    def lookup(
        self, schema: TableSchema, keys: Sequence[Key], columns: Sequence[str], seen: Collection[int]
    ) -> Mapping[Key, Mapping[str, Any]]:
        """Return values of rows as they are now, see :data:`connectors.doubt.Ask`; the connection is kept.

        Raises:
            SourceError: When the database does not answer or refuses (``SOURCE_LOOKUP``).
        """
        ...

    def close(self) -> None:
        """Close the connections that lookups and questions keep; the next one opens another."""
        ...

    def rights_now(self, tables: Sequence[TableId]) -> Mapping[TableId, Finding]:
        """Return the tables of which our role cannot read every row just now, and why; one may be gone.

        To be asked before rows that a snapshot has not read are removed from a sink: a row that our role does
        not see, by row security for instance, is not a row that is gone.
        """
        ...

    def unfit_now(self, tables: Sequence[TableSchema]) -> Mapping[TableId, Finding]:
        """Return the tables that a snapshot would not bring as they are just now, and why.

        One is not there, its key is another one, our role does not see every row of it, a column holds a
        value that the connector delivers as another, or its key became one that no run can read.
        """
        ...

    def whole_rows(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        """Return the statements after which the log tells whole rows of each table.

        They are empty where the application's own statements would fail then.
        """
        ...

    def give_way(self, capture: Capture) -> int:
        """End sessions of the connector that keep others waiting for a lock; return how many there were."""
        ...

    def request_snapshot(
        self,
        capture: Capture,
        tables: Sequence[TableId],
        signal: str,
        rows: Mapping[TableId, Sequence[Key]] | None = None,
        after: Mapping[TableId, str] | None = None,
    ) -> None:
        """Ask the connector to read ``tables`` anew beside the stream, under the id ``signal``.

        Args:
            capture: What is captured.
            tables: Which.
            signal: The request's name.
            rows: Table → the only rows to read of it.
            after: Table → the key after which to read it, as the connector has told it.

        Raises:
            SourceError: When it cannot do so with one of them (``RESNAPSHOT_UNREADABLE``); nothing was asked.
        """

    def steer_snapshot(self, capture: Capture, order: str, signal: str) -> None:
        """Tell the connector to ``stop``, ``pause`` or ``resume`` what it reads beside the stream."""

    def forget_orders(self, capture: Capture, kept: Collection[str]) -> None:
        """Remove from the database what the connector was told, but for what is named as ``kept`` begins."""
        ...

    def answer_seconds(self) -> float:
        """Return how long the database takes for a small question, seconds; the connection is kept."""
        ...

    def estimate_rows(self, tables: Sequence[TableId]) -> Mapping[TableId, int]:
        """Return about how many rows the tables hold, by the database's statistics."""
        ...

    def count_rows(self, capture: Capture, table: TableId) -> RowCount:
        """Return how many rows of a table our role sees now; takes a scan of it, however long that is.

        Raises:
            SourceError: Somebody waited for the table, and it was broken off (``SOURCE_GAVE_WAY``).
        """
        ...

    def select(self, statement: str) -> list[dict[str, object]]:
        """Run one statement of the user's and return its rows; empty when it yields none."""
        ...
