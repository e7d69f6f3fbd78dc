"""Changing what becomes of values that a sink's store cannot hold, while the sink goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, cast

from headrace.control.alone import Say
from headrace.control.context import Context
from headrace.control.opened import tables_of
from headrace.control.pipelines import rewrite, spec_path, withheld
from headrace.control.registry import Registry, SinkEntry
from headrace.control.runs.repository import active
from headrace.control.sink_settings import checked_settings
from headrace.model.errors import UsageError, naming
from headrace.model.schema import TableSchema
from sinks import registry as kinds
from sinks.unheld import UnheldSettings, refuse_unknown

__all__ = ["set_sink"]


def set_sink(context: Context, name: str, settings: Mapping[str, Any], *, say: Say = lambda _: None) -> None:
    """Give a sink other policies for values that its store cannot hold; its targets are made ready for them.

    What has been set aside is applied by a replay of its letters.

    Args:
        context: The installation.
        name: The sink.
        settings: ``unheld``, and ``unheld.<schema>.<table>.<column>``.
        say: Told what is waited for.

    Raises:
        UsageError: When another setting is given, a column is not mirrored, has no use for a policy or would
            refuse what it has kept (``SINK_SETTINGS_INVALID``), or a run fills its targets
            (``RESNAPSHOT_TABLE_BUSY``).
        SinkError: When the store refuses; the sink then goes on as before.
    """
    registry = Registry(context.registry)
    entry = registry.sink(name)
    _refuse_others(entry, settings)
    tables = tables_of(registry, entry)
    schemas = [table.schema for table in tables]
    refuse_unknown(settings, schemas, kinds.config_model(entry.kind))
    known = checked_settings(entry.kind, entry.source, {**entry.settings, **settings})
    _refuse_back(entry, known, schemas)
    for run in active(registry, entry.source):
        if name in run.plan.get("sinks", ()):
            raise UsageError(
                f"Run {run.id} fills targets of {name}: {run.phase}.",
                code="RESNAPSHOT_TABLE_BUSY",
                hint=f"headrace resnapshot wait {run.id}",
            )
    mine = [name] if spec_path(context, name).exists() else []
    with withheld(context, *mine, doing=f"a command that gives {name} other settings", say=say):
        with naming(entry.source, name), closing(kinds.build(entry.kind, name, known)) as sink:
            for schema in schemas:
                sink.prepare(schema)
        with registry.begin() as session:
            session.get_one(SinkEntry, name).settings = known
        if spec_path(context, name).exists():
            rewrite(context, name, lambda _: {"settings": known})
    registry.note(f"sink {name}", "settings changed", settings={n: str(v) for n, v in settings.items()})


def _refuse_others(entry: SinkEntry, settings: Mapping[str, Any]) -> None:
    if not issubclass(kinds.config_model(entry.kind), UnheldSettings):
        raise UsageError(
            f"A {entry.kind} sink holds every value: nothing of it can be set while it has its targets.",
            code="SINK_SETTINGS_INVALID",
            hint="It needs no policy for them.",
        )
    if strange := sorted(name for name in settings if name != "unheld" and not name.startswith("unheld.")):
        raise UsageError(
            f"{', '.join(strange)} cannot be set while the sink has its targets.",
            code="SINK_SETTINGS_INVALID",
            hint="What can: unheld and unheld.SCHEMA.TABLE.COLUMN, to refuse, null or nearest.",
        )


def _refuse_back(entry: SinkEntry, known: Mapping[str, Any], schemas: Sequence[TableSchema]) -> None:
    """Refuse to refuse what a column has kept until now: its rows would no longer be read as they are."""
    model = cast("type[UnheldSettings]", kinds.config_model(entry.kind))
    before, after = model(**entry.settings), model(**known)
    for schema in schemas:
        gone = dict(before.policies(schema)).keys() - dict(after.policies(schema)).keys()
        if gone:
            raise UsageError(
                f"{schema.table} keeps values of {', '.join(sorted(gone))} beside its rows: to refuse them"
                " would lose what is kept.",
                code="SINK_SETTINGS_INVALID",
                hint="Choose null or nearest, or remove the sink with --purge and add it again.",
            )
