"""The tables that a new sink is to have, and what is said of it before it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.config.pipeline import Swept
from headrace.control.kafka import Kafka
from headrace.control.registry import SourceTableEntry
from headrace.model.finding import Finding
from sinks.about import ROTATE

__all__ = ["before_adding", "trimmed"]


def trimmed(
    kafka: Kafka, captured: Sequence[SourceTableEntry], reread: Mapping[str, Swept]
) -> dict[str, Any]:
    """Return the topics from which a new sink can no longer load every row."""
    ends = kafka.ends([table.topic for table in captured])
    whole = {(topic, n): mark for topic, told in reread.items() for n, mark in enumerate(told.marks)}
    return {place[0]: first for place, (first, _) in ends.items() if first > whole.get(place, 0)}


def before_adding(findings: Sequence[Finding]) -> list[Finding]:
    """Return what a store's check says in words for a sink that is not there yet.

    What would be changed of one that is there is given at once.
    """
    return [
        replace(found, hint=found.hint.replace(f"or {ROTATE}", "or ").replace(ROTATE, "Add it with "))
        for found in findings
    ]
