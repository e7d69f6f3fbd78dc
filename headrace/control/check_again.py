"""What a check says of a source that was added."""

from __future__ import annotations

from dataclasses import replace

from headrace.control.capture import capture_of, source_of
from headrace.control.context import Context
from headrace.control.entries import RecoveryEntry
from headrace.control.fitness import OURS_ALREADY
from headrace.control.gap import gap_told_by
from headrace.control.recovery.ready import slot_taken
from headrace.control.registry import Registry, SourceEntry
from headrace.model.finding import Finding, Severity

__all__ = ["check_again"]

_TO_MAKE_ANEW = ("SOURCE_CREATE_RIGHT", "SOURCE_EVENT_TRIGGER", "SOURCE_OBJECT_USED", "SOURCE_VALUE_LARGE")
"""What a source that streams can do without, and a recovery cannot."""


def check_again(context: Context, name: str) -> list[Finding]:
    """Return what speaks for or against going on with a source that was added; changes nothing.

    What only a recovery would be refused for is an error where one is needed, and a warning elsewhere.
    """
    registry = Registry(context.registry)
    entry = registry.source(name)
    source, capture = source_of(context, entry), capture_of(context, entry)
    keys = {schema.table: schema.key for schema in capture.tables if schema.declared}
    tables = [schema.table for schema in capture.tables]
    found = source.preflight(
        tables, keys, partitions=entry.partitions, by_run_mib=capture.settings.load_by_run_mib
    )
    found = [finding for finding in found if finding.code not in OURS_ALREADY]
    anew, hold = source.check_anew(capture), source.hold(capture)
    if not gap_told_by(entry, hold) and not _is_being_recovered(registry, entry):
        found, anew = [_milder(finding) for finding in found], [_milder(finding) for finding in anew]
    if taken := slot_taken(context, entry, hold):
        anew.append(Finding.refused(taken))
    return [*found, *(finding for finding in anew if finding not in found)]


def _milder(finding: Finding) -> Finding:
    if finding.severity is Severity.ERROR and finding.code in _TO_MAKE_ANEW:
        return replace(finding, severity=Severity.WARNING)
    return finding


def _is_being_recovered(registry: Registry, entry: SourceEntry) -> bool:
    with registry.reading() as session:
        return session.get(RecoveryEntry, entry.name) is not None
