"""What has become of an ``add`` that somebody has ended with Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.cli.output import err, print_hint, print_json
from headrace.control.begun import noted
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.control.runs.repository import active
from headrace.control.undone import begun_sinks
from headrace.model.errors import HeadraceError

__all__ = ["telling"]


@contextmanager
def telling(context: Context, kind: str, name: str, *, as_json: bool) -> Iterator[None]:
    """Say on standard error whether a source or a sink stays when the block is interrupted, and what ends it.

    Raises:
        KeyboardInterrupt: The same that ends the block.
    """
    try:
        yield
    except KeyboardInterrupt:
        said, hint = _left(context, kind, name)
        if as_json:
            print_json({kind: name, "interrupted": True, "message": said, "hint": hint}, aside=True)
        else:
            print_hint(f"{said}; {hint}" if hint else said, to=err)
        raise


def _left(context: Context, kind: str, name: str) -> tuple[str, str]:
    """Return what is left, and what to do about it."""
    ends = f"`headrace {kind} remove {name}`"
    try:
        registry = Registry(context.registry)
        entries = registry.sources() if kind == "source" else registry.sinks()
        if (entry := {entry.name: entry for entry in entries}.get(name)) is not None:
            runs = [run.id for run in active(registry, name)] if kind == "source" else []
            waits = f"`headrace resnapshot wait {runs[0]}` waits on" if runs else "the same command waits on"
            if entry.adding is None and not runs:
                waits = "`headrace lag` tells how far it is"
            return f"{kind} {name} goes on", f"{waits}, {ends} ends it"
        begun = noted(registry) if kind == "source" else begun_sinks(registry)
        if name in begun:
            way = ends if kind == "source" else f"`headrace sink remove {name} --purge`"
            return f"what was made of {kind} {name} may be there still", f"{way} takes it back"
    except HeadraceError:  # the interruption is told all the same
        return f"whether {kind} {name} is registered is not known", f"`headrace {kind} list` tells it"
    return f"interrupted; what was made for {kind} {name} is taken back", ""
