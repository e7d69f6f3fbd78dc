"""Whether the rows that a snapshot has read have come to where sinks look for them.

The connector finds tables, and names topics, by rules of its own. Where these are others than ours, a table
looks like an empty one.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.control.kafka import Kafka
from headrace.control.registry import SourceTableEntry
from headrace.control.snapshot import Snapshot

__all__ = ["too_few", "unarrived"]


def unarrived(kafka: Kafka, tables: Iterable[SourceTableEntry], snapshot: Snapshot) -> dict[str, str]:
    """Return topic → what is wrong, of tables of which a snapshot that is complete has not brought all.

    What is streamed meanwhile counts as well: more records than rows prove nothing, fewer do.

    Args:
        kafka: Where the topics are.
        tables: Those that the snapshot was to read.
        snapshot: What the connector has told of it.

    Raises:
        StackError: When Kafka does not answer.
    """
    told: dict[str, int] = {}
    tables = list(tables)
    for (topic, _), (_, high) in kafka.ends([table.topic for table in tables]).items():
        told[topic] = told.get(topic, 0) + high
    wrong = {}
    for table in tables:
        rows = snapshot.scanned.get(str(table.schema.table))
        if rows is None:
            wrong[table.topic] = "the connector has not read it: it does not find a table of that name"
        elif told.get(table.topic, 0) < rows:
            wrong[table.topic] = too_few(rows, told.get(table.topic, 0))
    return wrong


def too_few(rows: int, arrived: int) -> str:
    """Return what is wrong when fewer records have arrived than rows were read."""
    return f"the connector has read {rows:,} rows of it, and {arrived:,} records have come into its topic"
