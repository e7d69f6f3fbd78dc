"""``headrace up | status | down``: the local stack of real servers."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from headrace.cli.ask import Yes, ask, print_dry
from headrace.cli.context import open_context
from headrace.cli.given import refuse_unused
from headrace.cli.home import HomeOption, home_of
from headrace.cli.left_behind import refuse_sources_left
from headrace.cli.output import JsonFlag, fails_clearly, out, print_hint, print_json
from headrace.config.secrets import mask_url
from headrace.control.registry import Registry
from headrace.control.runner import ensure_engine
from headrace.local.events import ServerStatus, StackEvent
from headrace.local.stack import Stack
from headrace.model.errors import StackError

__all__ = ["Progress", "register"]

_STYLES = {
    "resolving": "cyan",
    "starting": "cyan",
    "ready": "green",
    "running": "green",
    "stopped": "dim",
    "unresponsive": "yellow",
    "failed": "bold red",
    "died": "bold red",
}


class Progress:
    """One line per server that is rewritten as it starts; plain lines where there is no terminal."""

    def __init__(self, *, silent: bool) -> None:
        self._events: dict[str, StackEvent] = {}
        self._began: dict[str, float] = {}
        self._silent = silent
        self._live = Live(self, console=out, refresh_per_second=8) if out.is_terminal and not silent else None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: StackEvent) -> None:
        """Take an event of the stack."""
        self._began.setdefault(event.server, time.monotonic() - event.seconds)
        before = self._events.get(event.server)
        self._events[event.server] = event
        if self._silent or self._live is not None:
            return
        # Without a terminal a line per step, not one per downloaded block.
        if before is None or before.state != event.state:
            out.print(self._line(event), soft_wrap=True)

    def __rich__(self) -> Table:
        """Draw the lines as they stand."""
        table = Table.grid()
        for event in list(self._events.values()):
            table.add_row(self._line(event))
        return table

    def _line(self, event: StackEvent) -> Text:
        going = event.state in ("resolving", "starting")
        seconds = time.monotonic() - self._began[event.server] if going else event.seconds
        style = _STYLES.get(event.state, "")
        detail = event.detail.splitlines()[0] if event.detail else ""
        return Text.assemble(
            f"  {event.server:<14}", (f"{event.state:<12}", style), f"{seconds:6.1f} s  ", (detail, "dim")
        )


@fails_clearly
def up(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Start this server only; may be repeated.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every cached file again.")] = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Start the local stack: Postgres, Kafka, Kafka Connect, Elasticsearch, Redis. Harmless to repeat.

    Examples: `headrace up` · `headrace up --only postgres`
    """
    began = time.monotonic()
    stack = Stack(home_of(home))
    seconds: dict[str, dict[str, Any]] = {}
    with Progress(silent=as_json) as progress:

        def on_event(event: StackEvent) -> None:
            if event.state in ("ready", "running"):
                seconds[event.server] = {"state": event.state, "seconds": round(event.seconds, 2)}
            progress(event)

        names = {name for item in only for name in item.split(",")} if only else None
        endpoints = stack.up(on_event, names, verify=verify)
        if names is None and _start_engine(home):
            seconds["engine"] = {"state": "started", "seconds": 0.0}
    took = round(time.monotonic() - began, 2)
    if as_json:
        known = endpoints.as_dict()
        told = {"home": str(stack.home.root), "seconds": took, "servers": seconds, "endpoints": known}
        print_json({**told, **known})
        return
    out.print(f"[green]up[/] in {took:.1f} s, home {escape(str(stack.home.root))}", highlight=False)
    for name, value in endpoints.as_dict().items():
        out.print(f"  {name:<18} {mask_url(value)}", highlight=False, markup=False, soft_wrap=True)


def _start_engine(home: Path | None) -> bool:
    """Start the engine that sources, sinks and runs need; return whether it was started."""
    context = open_context(home)
    places = (context.pipelines.glob("*.json"), (context.run / "runs").glob("*"))
    needed = any(map(any, places)) or (context.registry.exists() and Registry(context.registry).sources())
    return bool(needed) and ensure_engine(context)


@fails_clearly
def status(home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """Show every server: state, pid, port, memory, version; and where they are reached.

    The exit code is 1 when one has died or does not answer; one that was stopped, or never started, is no
    trouble.

    Example: `headrace status --json`
    """
    stack = Stack(home_of(home))
    servers = stack.status()
    try:
        endpoints = stack.endpoints().as_dict()
    except StackError:
        endpoints = {}
    if as_json:
        items = [server.as_dict() for server in servers]
        print_json({"home": str(stack.home.root), "servers": items, "endpoints": endpoints, **endpoints})
    else:
        _print_status(servers, endpoints)
    if any(map(_is_in_trouble, servers)):
        raise typer.Exit(1)


def _is_in_trouble(server: ServerStatus) -> bool:
    return server.state in ("died", "unresponsive")


def _print_status(servers: list[ServerStatus], endpoints: Mapping[str, str]) -> None:
    out.print(_table(servers))
    for name, value in endpoints.items():
        out.print(f"  {name:<18} {mask_url(value)}", highlight=False, markup=False, soft_wrap=True)
    for server in filter(_is_in_trouble, servers):
        print_hint(f"log of {server.name}: {shlex.quote(str(server.log))}")
    if resting := [server.name for server in servers if server.state != "running"]:
        print_hint(f"not running: {', '.join(resting)}; to start them: `headrace up`")


def _table(servers: list[ServerStatus]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("server", "state"):
        table.add_column(column)
    for column in ("pid", "port", "memory", "up"):
        table.add_column(column, justify="right")
    table.add_column("version")
    for server in servers:
        table.add_row(
            server.name,
            Text(server.state, _STYLES.get(server.state, "")),
            str(server.pid or "-"),
            str(server.port or "-"),
            f"{server.rss_mib:.0f} MiB" if server.rss_mib is not None else "-",
            f"{server.uptime_seconds:.0f} s" if server.uptime_seconds is not None else "-",
            server.version,
        )
    return table


@fails_clearly
def down(
    ctx: typer.Context,
    purge: Annotated[bool, typer.Option("--purge", help="Delete the stack's data, too.")] = False,
    forget_sources: Annotated[
        bool,
        typer.Option(
            "--forget-sources",
            help="Purge also when sources follow databases elsewhere: their slots stay there and keep the"
            " log until somebody drops them.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be stopped, and what would go; do nothing.")
    ] = False,
    yes: Yes = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Stop what this stack started, in order; with --purge delete its data.

    With --purge it asks before on a terminal, unless --yes is given: the home goes, with the data of its
    servers, its registry and its lake. Databases and stores elsewhere keep what they have.

    Examples: `headrace down` · `headrace down --purge --dry-run`
    """
    if not purge:
        unused = "yes", "forget_sources"
        refuse_unused(ctx, *unused, where="without --purge", hint="headrace down --purge --dry-run")
    began = time.monotonic()
    stack = Stack(home_of(home))
    if purge and not forget_sources:
        refuse_sources_left(stack.home)
    if dry_run:
        _would(stack, purge=purge, as_json=as_json)
        return
    if purge and stack.home.exists():
        ask(f"{stack.home.root} with all data of its servers", yes=yes)
    stopped: list[str] = []
    with Progress(silent=as_json) as progress:

        def on_event(event: StackEvent) -> None:
            stopped.append(event.server)
            progress(event)

        killed = stack.down(purge, on_event)
    took = round(time.monotonic() - began, 2)
    if as_json:
        print_json({"stopped": stopped, "killed": killed, "purged": purge, "seconds": took})
        return
    if not stopped and not purge:
        out.print(f"nothing of {stack.home.root} ran", highlight=False, markup=False)
        return
    what = "down and purged" if purge else "down"
    out.print(f"[green]{what}[/] in {took:.1f} s", highlight=False)


def _would(stack: Stack, *, purge: bool, as_json: bool) -> None:
    """Say what `down` would stop, and what would go; nothing is changed."""
    if purge:
        stack.home.refuse_foreign()
    root = str(stack.home.root)
    stops = [server.name for server in stack.status() if server.pid]
    goes = {"directory": [root] if purge and stack.home.exists() else []}
    if as_json:
        print_json({"home": root, "dry_run": True, "stops": stops, "goes": goes})
        return
    out.print(f"Would stop: {', '.join(stops) or 'nothing'}.", markup=False, highlight=False)
    if purge:
        print_dry({"home": root}, goes, as_json=False)


def register(app: typer.Typer) -> None:
    """Add the commands of this room to ``app``."""
    app.command()(up)
    app.command()(status)
    app.command()(down)
