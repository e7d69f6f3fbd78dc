"""Commands whose modules are imported when they are called: help and the list of commands need none."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

__all__ = ["ROOMS", "Rooms"]

ROOMS: dict[str, tuple[str, str]] = {
    "up": (
        "stack",
        "Start the local stack: Postgres, Kafka, Kafka Connect, Elasticsearch, Redis. Harmless to repeat.",
    ),
    "status": (
        "stack",
        "Show every server: state, pid, port, memory, version; and where they are reached.",
    ),
    "down": ("stack", "Stop what this stack started, in order; with --purge delete its data."),
    "resnapshot": (
        "resnapshot",
        "Read tables anew beside the stream, then remove from the sinks what the source no longer has.",
    ),
    "resync": ("resnapshot", ""),
    "recover": (
        "recover",
        "Mend a source whose history has a gap: lost slot, restored database, lost or trimmed topics.",
    ),
    "lag": ("lag", "Tell slot lag, consumer lag, latency and freshness, and one word per table and sink."),
    "journal": (
        "journal",
        "List what happened: sources and sinks added, columns that changed, resnapshots, take-overs.",
    ),
    "psql": ("psql", "Run SQL in the source database."),
    "demo": (
        "demo",
        "Show it all: local servers, a sample shop, three sinks, live writes, then every row compared.",
    ),
    "source": ("source", "The source database: check, add, list, show, remove."),
    "sink": ("sink", "Derived stores: check, add, list, show, pause, resume, remove."),
    "dlq": ("dlq", "Records a sink could not take: list, show, replay, discard."),
}
"""Command → the module that registers it, and its line in the list of commands; without one it is hidden."""


@cache
def _commands(module: str) -> Mapping[str, Any]:
    """Return a module's commands by name. It registers them once: it would add them to its groups again."""
    room = typer.Typer(rich_markup_mode="markdown")
    gc.disable()  # what is imported stays; to look for garbage in it takes a tenth of the time
    try:
        import_module(f"headrace.cli.{module}").register(room)
    finally:
        gc.enable()
    return get_group(room).commands


class _Loaded(MutableMapping[str, Any]):
    """The commands by name, each imported when it is asked for."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            self._known |= _commands(ROOMS[name][0])
        return self._known[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._known[name] = command

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ROOMS)

    def __len__(self) -> int:
        return len(ROOMS)


class Rooms(TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Loaded()
        self._only_listed = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command; while help is written one that has a name and a help, and no more."""
        if self._only_listed and cmd_name in ROOMS:
            line = ROOMS[cmd_name][1]
            return TyperCommand(name=cmd_name, help=line, callback=None, hidden=not line)
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names, in the order of :data:`ROOMS`."""
        return list(ROOMS)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of ``headrace`` itself."""
        self._only_listed = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._only_listed = False
