"""Which epochs were ever handed out, remembered in Kafka beside the topics: no epoch is given twice.

The registry remembers them, too. It may be lost or restored from an older backup while the topics, the
connector and the rows in the stores live on; a compacted topic then still knows the highest epoch of each.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.control.kafka import Kafka, Topic
from headrace.control.registry import Registry

__all__ = ["LEDGER", "next_epochs"]

LEDGER = "headrace-epochs"
_KEPT = {"cleanup.policy": "compact", "retention.ms": "-1"}


def next_epochs(registry: Registry, kafka: Kafka, topics: Sequence[str]) -> dict[str, int]:
    """Return for each topic an epoch above every earlier one; it is remembered before this returns.

    Raises:
        StackError: When Kafka does not answer; nothing was handed out then.
    """
    kafka.create([Topic(LEDGER, 1, _KEPT)])
    known = _known(kafka)
    given = {topic: registry.next_epoch(topic, above=known.get(topic)) for topic in topics}
    kafka.put(LEDGER, {topic: {"topic": topic, "epoch": epoch} for topic, epoch in given.items()})
    return given


def _known(kafka: Kafka) -> dict[str, int]:
    known: dict[str, int] = {}
    for told in kafka.committed(LEDGER)[0]:
        known[told["topic"]] = max(int(told["epoch"]), known.get(told["topic"], 0))
    return known
