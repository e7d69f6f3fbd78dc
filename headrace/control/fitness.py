"""What is refused before anything is made: what is unfit, keys that nobody meant, topics in use."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from connectors.base import Keys, Source, topic_of
from headrace.config.source import SourceSettings
from headrace.control.capture import capture_of
from headrace.control.connect import Connect
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry, SourceEntry, SourceTableEntry
from headrace.control.remedies import another_key
from headrace.model.errors import HeadraceError, SourceError, UsageError, named
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId

__all__ = [
    "KEY_CHANGED",
    "OURS_ALREADY",
    "findings_of",
    "in_words_of",
    "refuse_not_streaming",
    "refuse_unfit",
    "refuse_unmeant",
    "refuse_used",
    "shared_topics",
    "unfit_now",
    "without_unfit",
]

KEY_CHANGED = "SOURCE_KEY_CHANGED"
"""Code of a table whose key is another one than is captured: other rows are meant than those mirrored."""

OURS_ALREADY = (
    "SOURCE_SLOTS",
    "SOURCE_SENDERS",
    "SOURCE_CREATE_RIGHT",
    "SOURCE_CONNECTIONS",
    "SOURCE_EVENT_TRIGGER",
    "SOURCE_LONG_TRANSACTION",
    "SOURCE_PUBLISHED_ALL",
)
"""What is asked of a database before a source is added, and is there once it is."""


def findings_of(
    source: Source, tables: Sequence[TableId], keys: Keys | None, settings: SourceSettings
) -> list[Finding]:
    """Return what speaks for or against adding a database with these tables; changes nothing."""
    asked = source.preflight(
        tables,
        keys,
        partitions=settings.partitions,
        readers=settings.snapshot_threads,
        by_run_mib=settings.load_by_run_mib,
    )
    return [*asked, *shared_topics(tables)]


def refuse_unmeant(tables: Sequence[TableId], keys: Keys, leave_out: Collection[TableId] = ()) -> None:
    """Refuse words about tables that are not to be captured.

    Raises:
        UsageError: ``SOURCE_KEY_UNMEANT``, ``SOURCE_COLUMN_UNMEANT``.
    """
    strange = [str(table) for table in leave_out if table not in tables]
    if strange:
        raise UsageError(
            f"Columns of {', '.join(strange)} are to be left out, which is not captured.",
            code="SOURCE_COLUMN_UNMEANT",
            hint="Names are case-sensitive: --leave-out schema.table=column,column.",
        )
    unmeant = [str(table) for table in keys if table not in tables]
    if unmeant:
        raise UsageError(
            f"A key is declared for {', '.join(unmeant)}, which is not captured.",
            code="SOURCE_KEY_UNMEANT",
            hint="Names are case-sensitive: --key schema.table=column,column.",
        )


def shared_topics(tables: Sequence[TableId]) -> list[Finding]:
    """Return an error for each table whose topic would be that of another, or not told apart from it."""
    first: dict[str, TableId] = {}
    found = []
    for table in tables:
        other = first.setdefault(_to_kafka(topic_of("", table)), table)
        if other != table:
            found.append(
                Finding.error(
                    "SOURCE_TOPIC_SHARED",
                    f"{other} and {table} would share one topic: Kafka allows letters, digits, dot, dash and"
                    " underscore in its name; all else becomes an underscore, as which a dot counts, too.",
                    f"Capture one of them: name the tables with --table, or leave {table} out: --skip-unfit.",
                    table,
                )
            )
    return found


def without_unfit(
    findings: Sequence[Finding], tables: Sequence[TableId]
) -> tuple[list[TableId], dict[TableId, list[Finding]]]:
    """Return the tables that are fit, and why each of the others is not."""
    unfit: dict[TableId, list[Finding]] = {}
    for finding in findings:
        if finding.severity is Severity.ERROR and finding.table is not None:
            unfit.setdefault(finding.table, []).append(finding)
    return [table for table in tables if table not in unfit], unfit


def refuse_unfit(
    findings: Sequence[Finding], kind: type[HeadraceError] = SourceError, code: str = "SOURCE_UNFIT"
) -> None:
    """Refuse what has errors among its findings, with every reason.

    Raises:
        HeadraceError: Of the ``kind``; with its own code when there is one error, else with ``code``.
    """
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise kind(
            " ".join(finding.message for finding in errors),
            code=errors[0].code if len(errors) == 1 else code,
            hint="\n".join(finding.hint for finding in errors if finding.hint),
        )


def refuse_not_streaming(context: Context, entry: SourceEntry, *, waits: bool = True) -> None:
    """Refuse what needs a connector that runs.

    Args:
        context: The installation.
        entry: The source.
        waits: Whether one that is being started is waited for, unless nobody starts it before a recovery.

    Raises:
        SourceError: ``SOURCE_NOT_STREAMING``.
    """
    with Connect(context.connect_url) as connect:
        look = connect.settled if waits and not entry.gap else connect.state
        state = look(capture_of(context, entry).connector)
    if not state.running:
        anew = state.connector == "ABSENT" or state.stuck
        raise SourceError(
            f"The connector of {entry.name} does not stream: {state.words}",
            code="SOURCE_NOT_STREAMING",
            hint=f"headrace {'recover' if anew else 'source resume'} {entry.name}",
        )


def refuse_used(kafka: Kafka, names: Sequence[str], fresh: Sequence[str]) -> None:
    """Refuse topics that Kafka would not tell apart, and fresh ones that have records already.

    Args:
        kafka: The broker, whose other topics count as well.
        names: Every topic that the source is to have.
        fresh: Those of them that no table has yet.

    Raises:
        SourceError: ``SOURCE_TOPIC_SHARED``, ``SOURCE_TOPICS_EXIST``.
    """
    mine: dict[str, str] = {}
    for name in names:
        known = _to_kafka(name)
        if known in mine:
            raise _shared(mine[known], name)
        mine[known] = name
    for other in sorted(kafka.names()):
        name = mine.get(_to_kafka(other), other)
        if name != other:
            raise _shared(other, name)
    used = sorted({topic for (topic, _), (_, high) in kafka.ends(fresh).items() if high > 0})
    if used:
        raise SourceError(
            f"Kafka already holds records in {', '.join(used)}.",
            code="SOURCE_TOPICS_EXIST",
            hint="Choose another source name, or delete these topics.",
        )


def _to_kafka(topic: str) -> str:
    """Return what Kafka takes a topic's name for; of two with the same it makes one only."""
    return topic.replace(".", "_")


def _shared(there: str, name: str) -> SourceError:
    told = "one topic" if there == name else f"topics that Kafka does not tell apart, {there} and"
    return SourceError(
        f"Two tables, or sources, would have {told} {name}: dots count as underscores in a name, and so does"
        " all else but letters, digits and dashes.",
        code="SOURCE_TOPIC_SHARED",
        hint="Capture one of them; or this one by a source of another name:"
        " headrace source add NAME env:URL --table SCHEMA.TABLE",
    )


def unfit_now(
    registry: Registry, entry: SourceEntry, source: Source, tables: Sequence[SourceTableEntry]
) -> dict[TableId, Finding]:
    """Return the tables that a run would not bring as they are just now, why, and what mends that."""
    found = source.unfit_now([table.schema for table in tables])
    sinks = registry.sinks(entry.name)
    return {
        table: replace(one, hint=another_key(entry, sinks, table)) if one.code == KEY_CHANGED else one
        for table, one in found.items()
    }


def in_words_of(source: str, unfit: Mapping[TableId, Finding]) -> dict[str, str]:
    """Return table → what is wrong with it and what mends it, for people who look at the source."""
    return {
        str(table): f"{found.message} {named(found.hint, source=source)}" for table, found in unfit.items()
    }
