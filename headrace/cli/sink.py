"""``headrace sink``: the stores that are kept equal."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any

import typer

from headrace.cli.context import HomeOption, addresses, home_of, open_context, table_id
from headrace.cli.output import JsonFlag, fails_clearly, out, print_json
from headrace.cli.show import age, findings_as_dicts, grid, number, print_findings, say_to, state_text
from headrace.config.pipeline import SchemaPolicy
from headrace.config.secrets import mask_settings
from headrace.control import lag, sink
from headrace.control.context import Context
from headrace.control.registry import Registry, SinkEntry
from headrace.control.rotate import rotate_sink
from headrace.control.sink_settings import shown_secrets
from headrace.model.errors import UsageError
from sinks.registry import KINDS, secret_names

__all__ = ["register"]

commands = typer.Typer(no_args_is_help=True, help="Derived stores: add, list, show, pause, resume, remove.")

Name = Annotated[str, typer.Argument(help="The sink's name.")]
_ADDRESS = {
    "elasticsearch": ("url", "elasticsearch_url"),
    "redis": ("url", "redis_url"),
}


@commands.command("add")
@fails_clearly
def add(
    name: Name,
    kind: Annotated[
        str, typer.Option("--kind", help=f"One of: {', '.join(k for k in KINDS if k != 'memory')}.")
    ],
    source: Annotated[str | None, typer.Option(help="The source. [default: the only one]")] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", help="A table, schema.name; may be repeated. [default: all]"),
    ] = None,
    url: Annotated[str | None, typer.Option(help="The store's address. [default: the local stack's]")] = None,
    path: Annotated[str | None, typer.Option(help="delta: directory of the lake.")] = None,
    format_: Annotated[str | None, typer.Option("--format", help="redis: json or hash.")] = None,
    key_prefix: Annotated[str | None, typer.Option(help="redis: what every key begins with.")] = None,
    prefix: Annotated[str | None, typer.Option(help="elasticsearch: what every index begins with.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any other setting, key=value; a secret as env:NAME or file:PATH[:key]. May be repeated.",
        ),
    ] = None,
    on_schema_change: Annotated[
        SchemaPolicy,
        typer.Option(
            help="When columns change: follow (lenient; evolve also takes old values away), leave them out "
            "(ignore), or set the table's rows aside until you decide (exception)."
        ),
    ] = SchemaPolicy.LENIENT,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Stop another installation that writes to the same targets.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Return only when its query runs.")] = True,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Keep a store equal to a source: check it, create its targets, start applying.

    Examples: `headrace sink add search --kind elasticsearch` ·
    `headrace sink add cache --kind redis --format hash` · `headrace sink add lake --kind delta`
    """
    context = open_context(home)
    given = {"url": url, "path": path, "format": format_, "key_prefix": key_prefix, "prefix": prefix}
    settings: dict[str, Any] = {
        **_defaults(kind, name, addresses(home_of(home))),
        **{key: value for key, value in given.items() if value is not None},
        **(told := _pairs(setting, kind)),
    }
    entry, findings = sink.add(
        context,
        name,
        kind,
        settings=settings,
        source=source,
        tables=[table_id(text) for text in table or ()],
        wait=wait,
        take_over=take_over,
        on_schema_change=on_schema_change,
        say=say_to(as_json=as_json),
    )
    findings = [*findings, *shown_secrets(kind, {**told, **({"url": url} if url else {})})]
    if as_json:
        print_json({**_described(context, entry), "findings": findings_as_dicts(findings)})
        return
    print_findings(findings, quiet_ok=True)
    doing = "follows" if wait else "will follow"
    out.print(f"[green]✓[/] {name} {doing} {entry.source}: {len(entry.tables)} tables", highlight=False)


@commands.command("list")
@fails_clearly
def list_(home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """List sinks and how they do.

    Example: `headrace sink list`
    """
    context = open_context(home)
    if as_json:
        print_json([_described(context, entry) for entry in Registry(context.registry).sinks()])
        return
    out.print(
        grid(
            ("sink", "kind", "source", "state", "p50>", "p99>", "reason"),
            [
                (
                    found.sink,
                    found.kind,
                    found.source,
                    state_text(found.state),
                    _milliseconds(found.latency_ms.get("p50")),
                    _milliseconds(found.latency_ms.get("p99")),
                    found.reason,
                )
                for found in lag.measure(context).sinks
            ],
        )
    )


@commands.command("show")
@fails_clearly
def show(name: Name, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """Show one sink: its state and, for every table, where it lives and how far it is.

    Example: `headrace sink show search --json`
    """
    context = open_context(home)
    described = _described(context, Registry(context.registry).sink(name))
    if as_json:
        print_json(described)
        return
    out.print(
        f"[bold]{name}[/]  {state_text(described['state'])}  {described['kind']} of {described['source']}",
        highlight=False,
    )
    for label in ("reason", "remedy"):
        if described[label]:
            out.print(f"{label}: {described[label]}", markup=False, highlight=False)
    out.print(
        grid(
            ("table", "state", "lag>", "freshness>", "applied>", "rejected>", "behind>", "target"),
            [
                (
                    table,
                    state_text(facts["state"]),
                    number(facts["lag_records"]),
                    age(facts["freshness_seconds"]),
                    number(facts["applied"]),
                    number(facts["rejected"]),
                    number(facts["behind"]),
                    " ".join(f"{key}={value}" for key, value in facts["target"].items()),
                )
                for table, facts in described["tables"].items()
            ],
        )
    )


@commands.command("pause")
@fails_clearly
def pause(name: Name, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """Stop applying; changes wait in Kafka.

    Example: `headrace sink pause lake`
    """
    sink.pause(open_context(home), name)
    _done(name, "paused", as_json)


@commands.command("resume")
@fails_clearly
def resume(
    name: Name,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Stop any other writer to its targets, and write here again.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Apply on; starts the engine when it does not run.

    Examples: `headrace sink resume lake` · `headrace sink resume lake --take-over`
    """
    sink.resume(open_context(home), name, take_over=take_over)
    _done(name, "resumed", as_json)


@commands.command("remove")
@fails_clearly
def remove(
    name: Name,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete its targets and their data.")] = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Stop applying and forget the sink; its data stays unless --purge.

    Example: `headrace sink remove search --purge`
    """
    sink.remove(open_context(home), name, purge=purge, say=say_to(as_json=as_json))
    _done(name, "removed", as_json)


@commands.command("rotate")
@fails_clearly
def rotate(
    name: Name,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="password=, api_key= or username=; env:NAME or file:PATH[:key]."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Give a sink other credentials, once the store has taken them; without --set read its files anew.

    Example: `headrace sink rotate search --set password=env:ES_PASSWORD`
    """
    context = open_context(home)
    told = _pairs(setting, kind := Registry(context.registry).sink(name).kind)
    rotate_sink(context, name, told)
    print_findings([] if as_json else shown_secrets(kind, told))
    _done(name, "uses its new credentials", as_json)


def _done(name: str, what: str, as_json: bool) -> None:
    if as_json:
        print_json({"sink": name, "done": what})
    else:
        out.print(f"[green]✓[/] {name} {what}", highlight=False)


def _defaults(kind: str, name: str, known: Mapping[str, str]) -> dict[str, str]:
    if kind == "delta":
        return {"path": f"{known['lake_path']}/{name}"}
    setting, endpoint = _ADDRESS.get(kind, ("", ""))
    return {setting: known[endpoint]} if endpoint in known else {}


def _pairs(texts: list[str] | None, kind: str) -> dict[str, Any]:
    secrets = secret_names(kind)
    return dict(_pair(text, secrets) for text in texts or ())


def _pair(text: str, secrets: Collection[str]) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(
            f"“{text}” is no setting.", code="SINK_SETTINGS_INVALID", hint="Write --set key=value."
        )
    if key in secrets:
        return key, value  # a password of digits is no number
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} ms"


def _described(context: Context, entry: SinkEntry) -> dict[str, Any]:
    report = lag.measure(context)
    seen = next(found for found in report.sinks if found.sink == entry.name)
    tables = {found.table: found for found in report.tables if found.sink == entry.name}
    return {
        "sink": entry.name,
        "kind": entry.kind,
        "source": entry.source,
        "state": seen.state,
        "reason": seen.reason,
        "remedy": seen.remedy,
        "settings": mask_settings(entry.settings),
        "on_schema_change": entry.on_schema_change,
        "latency_ms": seen.latency_ms,
        "first_row_ms": seen.first_row_ms,
        "created_ms": entry.created_ms,
        "tables": {
            name: {
                "target": entry.tables[table.topic],
                "topic": table.topic,
                "key": list(table.schema.key),
                "state": tables[name].state,
                "reason": tables[name].reason,
                "lag_records": tables[name].lag_records,
                "freshness_seconds": tables[name].freshness_seconds,
                "applied": tables[name].applied,
                "stale": tables[name].stale,
                "rejected": tables[name].rejected,
                "behind": tables[name].behind,
            }
            for table in sink.tables_of(Registry(context.registry), entry)
            for name in [str(table.schema.table)]
        },
    }


def register(app: typer.Typer) -> None:
    """Add the commands of this room to ``app``."""
    app.add_typer(commands, name="sink")
