"""Tables that a check refuses for themselves: left out by name when that is asked for, else told how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.control.entries import SinkEntry, SourceTableEntry
from headrace.control.fitness import without_unfit
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId

__all__ = ["Spared", "Unfit", "left_out_of", "noted", "reasons", "spared", "warnings"]

Unfit = Mapping[TableId, Sequence[Finding]]
"""Table → the errors that keep it out."""


@dataclass(frozen=True, slots=True)
class Spared:
    """What a check leaves of some tables.

    Args:
        tables: Those to go on with.
        unfit: Those that are left out, and why.
        findings: What is to be said. A table that is left out is a warning.
    """

    tables: Sequence[TableId]
    unfit: Unfit
    findings: Sequence[Finding]


def spared(findings: Sequence[Finding], tables: Sequence[TableId], *, skip: bool, again: str) -> Spared:
    """Return what a check leaves of some tables; all of them when it refuses every one.

    Args:
        findings: What the check has said.
        tables: Which tables were asked for.
        skip: Whether those that are refused for themselves are to be left out. Without it the last error says
            how that is done, unless the others would be refused, too.
        again: The command that leaves them out; empty where it cannot be told as a whole.
    """
    fit, unfit = without_unfit(findings, tables)
    others = [one for one in findings if one.table not in unfit]
    if not (fit and unfit):
        return Spared(tables, {}, findings)
    if skip:
        return Spared(fit, unfit, [*others, *warnings(unfit)])
    told = list(findings)
    if not any(one.severity is Severity.ERROR for one in others):
        last = max(number for number, one in enumerate(told) if one.severity is Severity.ERROR)
        named = ", ".join(map(str, sorted(unfit, key=str)))
        way = again or "give the same command with --skip-unfit"
        told[last] = replace(told[last], hint=f"{told[last].hint}\nOr leave {named} out: {way}".strip())
    return Spared(tables, {}, told)


def warnings(unfit: Unfit) -> list[Finding]:
    """Return why tables are left out, each reason with what mends it, as what a person should know."""
    return [
        Finding.warning(one.code, f"{table} is left out: {one.message}", one.hint, table)
        for table, why in unfit.items()
        for one in why
    ]


def reasons(unfit: Unfit) -> dict[str, str]:
    """Return table → why it is left out and what mends that, JSON-ready."""
    return {
        str(table): " ".join(f"{one.message} {one.hint}".strip() for one in why)
        for table, why in unfit.items()
    }


def noted(unfit: Unfit, tables: Sequence[SourceTableEntry]) -> dict[str, Any] | None:
    """Return what the registry keeps of tables that a sink leaves out; None when it leaves out none."""
    told = [(table.topic, unfit[table.schema.table]) for table in tables if table.schema.table in unfit]
    kept = {
        topic: [{"code": one.code, "message": one.message, "hint": one.hint} for one in why]
        for topic, why in told
    }
    return kept or None


def left_out_of(entry: SinkEntry, tables: Sequence[SourceTableEntry]) -> Unfit:
    """Return which of some tables a sink leaves out, and why, as :func:`noted` has written it."""
    kept = entry.left_out or {}
    return {
        table.schema.table: [
            Finding.error(one["code"], one["message"], one["hint"], table.schema.table)
            for one in kept[table.topic]
        ]
        for table in tables
        if table.topic in kept
    }
