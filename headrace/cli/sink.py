"""``headrace sink``: the stores that are kept equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli import remove as removal
from headrace.cli.context import HomeOption, addresses, home_of, open_context, table_id
from headrace.cli.interrupted import telling
from headrace.cli.output import JsonFlag, fails_clearly, out, print_hint, print_json
from headrace.cli.reasons import Trouble, lines_of
from headrace.cli.show import (
    age,
    findings_as_dicts,
    grid,
    number,
    print_findings,
    print_title,
    say_to,
    state_text,
)
from headrace.cli.sink_facts import facts_of, facts_of_all
from headrace.config.pipeline import SchemaPolicy
from headrace.control import lag, sink, sink_check
from headrace.control.registry import Registry
from headrace.control.rotate import rotate_sink
from headrace.control.sink_set import set_sink
from headrace.control.sink_settings import shown_secrets
from headrace.control.spared import reasons
from headrace.model.errors import UsageError
from headrace.model.finding import Finding, Severity
from headrace.model.schema import TableId
from sinks.registry import OFFERED, setting_of

__all__ = ["register"]

commands = typer.Typer(
    no_args_is_help=True, help="Derived stores: check, add, list, show, pause, resume, remove."
)

Name = Annotated[str, typer.Argument(help="The sink's name.")]
_ADDRESS = {
    "elasticsearch": ("url", "elasticsearch_url"),
    "redis": ("url", "redis_url"),
}

Kind = Annotated[str, typer.Option("--kind", help=f"One of: {', '.join(OFFERED)}.")]
Source = Annotated[str | None, typer.Option(help="The source. [default: the only one]")]
Tables = Annotated[
    list[str] | None,
    typer.Option("--table", "-t", help="A table, schema.name; may be repeated. [default: all]"),
]
Url = Annotated[str | None, typer.Option(help="The store's address. [default: the local stack's]")]
Directory = Annotated[str | None, typer.Option(help="delta: directory of the lake.")]
Format = Annotated[str | None, typer.Option("--format", help="redis: json or hash.")]
KeyPrefix = Annotated[str | None, typer.Option(help="redis: what every key begins with.")]
Prefix = Annotated[str | None, typer.Option(help="elasticsearch: what every index begins with.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Any other setting, key=value; a secret as env:NAME or file:PATH[:key]. May be repeated.",
    ),
]
Policy = Annotated[
    SchemaPolicy,
    typer.Option(
        "--on-schema-change",
        help="When columns change: follow (lenient; evolve also takes old values away), leave them out "
        "(ignore), or set the table's rows aside until you decide (exception).",
    ),
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Stop another installation that writes to the same targets.")
]
SkipUnfit = Annotated[
    bool,
    typer.Option("--skip-unfit", help="Leave out, by name, tables that the store refuses; mirror the rest."),
]


@commands.command("check")
@fails_clearly
def check(
    name: Name,
    kind: Kind,
    source: Source = None,
    table: Tables = None,
    url: Url = None,
    path: Directory = None,
    format_: Format = None,
    key_prefix: KeyPrefix = None,
    prefix: Prefix = None,
    setting: Settings = None,
    on_schema_change: Policy = SchemaPolicy.LENIENT,
    take_over: TakeOver = False,
    skip_unfit: SkipUnfit = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what speaks for or against a sink, as `sink add` with the same options would. Changes nothing.

    Example: `headrace sink check search --kind elasticsearch --url https://es.example:9200`
    """
    given = {"url": url, "path": path, "format": format_, "key_prefix": key_prefix, "prefix": prefix}
    settings, told = _settings(kind, name, home, given, setting)
    left: dict[TableId, Sequence[Finding]] = {}
    findings = sink_check.check(
        open_context(home),
        name,
        kind,
        settings=settings,
        source=source,
        tables=[table_id(text) for text in table or ()],
        take_over=take_over,
        on_schema_change=on_schema_change,
        skip_unfit=skip_unfit,
        skipped=left.update,
    )
    findings += shown_secrets(kind, told)
    fit = all(finding.severity is not Severity.ERROR for finding in findings)
    if as_json:
        print_json({"fit": fit, "findings": findings_as_dicts(findings), "left_out": reasons(left)})
    else:
        print_findings(findings)
    if not fit:
        raise typer.Exit(1)


@commands.command("add")
@fails_clearly
def add(
    name: Name,
    kind: Kind,
    source: Source = None,
    table: Tables = None,
    url: Url = None,
    path: Directory = None,
    format_: Format = None,
    key_prefix: KeyPrefix = None,
    prefix: Prefix = None,
    setting: Settings = None,
    on_schema_change: Policy = SchemaPolicy.LENIENT,
    take_over: TakeOver = False,
    skip_unfit: SkipUnfit = False,
    wait: Annotated[
        bool,
        typer.Option(
            help="Return only when its query runs. When tables were read anew before, both wait until it has"
            " passed that, to sweep them."
        ),
    ] = True,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Keep a store equal to a source: check it, create its targets, start applying.

    Examples: `headrace sink add search --kind elasticsearch` ·
    `headrace sink add cache --kind redis --format hash` · `headrace sink add lake --kind delta`
    """
    context = open_context(home)
    given = {"url": url, "path": path, "format": format_, "key_prefix": key_prefix, "prefix": prefix}
    settings, told = _settings(kind, name, home, given, setting)
    with telling(context, "sink", name, as_json=as_json):
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
            skip_unfit=skip_unfit,
            say=say_to(as_json=as_json),
        )
    findings = [*findings, *shown_secrets(kind, told)]
    if as_json:
        print_json({**facts_of(context, name), "findings": findings_as_dicts(findings)})
        return
    print_findings(findings, quiet_ok=True)
    doing = "follows" if wait else "will follow"
    out.print(f"[green]✓[/] {name} {doing} {entry.source}: {len(entry.tables)} tables", highlight=False)
    print_hint("    `headrace lag --wait 600` returns once every store shows every row", style="dim")


@commands.command("list")
@fails_clearly
def list_(home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """List sinks and how they do.

    Example: `headrace sink list`
    """
    context = open_context(home)
    if as_json:
        print_json(facts_of_all(context))
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
    described = facts_of(context, name)
    if as_json:
        print_json(described)
        return
    print_title(name, described["state"], f"{described['kind']} of {described['source']}")
    for table, why in described["left_out"].items():
        print_hint(f"left out {table}: {why}")
    troubles = [
        Trouble(table, name, facts["state"], facts["reason"], facts["remedy"])
        for table, facts in described["tables"].items()
    ]
    lines = [*lines_of(troubles), ("remedy", described["remedy"])]
    if not any(word == "reason" and text.endswith(described["reason"]) for word, text in lines):
        lines.insert(0, ("reason", described["reason"]))
    for word, text in dict.fromkeys(line for line in lines if line[1]):
        print_hint(f"{word}: {text}")
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
    warnings = shown_secrets(kind, told)
    print_findings([] if as_json else warnings)
    said = findings_as_dicts(warnings)
    # The first name is that of every other command; the second is there where something is found.
    _done(name, "uses its new credentials", as_json, findings=said, **({"warnings": said} if said else {}))


@commands.command("set")
@fails_clearly
def set_(
    name: Name,
    setting: Annotated[
        list[str],
        typer.Argument(help="unheld=POLICY or unheld.SCHEMA.TABLE.COLUMN=POLICY.", metavar="SETTING…"),
    ],
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Change what becomes of values that the store cannot hold: refuse, null or nearest.

    Example: `headrace sink set lake unheld.public.contracts.until=nearest`, then
    `headrace dlq replay --sink lake` for what was set aside.
    """
    context = open_context(home)
    how = "Write unheld=POLICY or unheld.SCHEMA.TABLE.COLUMN=POLICY."
    given = _pairs(setting, Registry(context.registry).sink(name).kind, how)
    set_sink(context, name, given, say=say_to(as_json=as_json))
    _done(name, "uses its new settings", as_json)


def _done(name: str, what: str, as_json: bool, **told: list[Any]) -> None:
    if as_json:
        print_json({"sink": name, "done": what, **told})
    else:
        out.print(f"[green]✓[/] {name} {what}", highlight=False)


def _settings(
    kind: str, name: str, home: Path | None, given: Mapping[str, str | None], pairs: list[str] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return all settings, and those among them that somebody has written on the command line."""
    written = {**{key: value for key, value in given.items() if value is not None}, **_pairs(pairs, kind)}
    return {**_defaults(kind, name, addresses(home_of(home))), **written}, written


def _defaults(kind: str, name: str, known: Mapping[str, str]) -> dict[str, str]:
    if kind == "delta":
        return {"path": f"{known['lake_path']}/{name}"}
    setting, endpoint = _ADDRESS.get(kind, ("", ""))
    return {setting: known[endpoint]} if endpoint in known else {}


def _pairs(texts: list[str] | None, kind: str, how: str = "Write --set key=value.") -> dict[str, Any]:
    return dict(_pair(text, kind, how) for text in texts or ())


def _pair(text: str, kind: str, how: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"“{text}” is no setting.", code="SINK_SETTINGS_INVALID", hint=how)
    return key, setting_of(kind, key, value)


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} ms"


def register(app: typer.Typer) -> None:
    """Add the commands of this room to ``app``."""
    commands.command("remove")(removal.sink)
    app.add_typer(commands, name="sink")
