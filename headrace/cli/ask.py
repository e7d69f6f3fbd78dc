"""Before something is gone for good: what goes is said, and a person at a terminal is asked."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from headrace.cli.output import err, out, print_json
from headrace.model.errors import HeadraceError

__all__ = ["DryRun", "Interrupted", "Yes", "ask", "print_dry"]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would go; do nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Without a terminal nobody is asked.")]


class Interrupted(HeadraceError):
    """Somebody has ended a question with Ctrl-C."""

    exit_code = 130


def ask(what: str, *, yes: bool) -> None:
    """Ask a person at a terminal whether something is to go; scripts are not asked.

    The question goes to standard error, so that what a program reads from standard output stays JSON.

    Args:
        what: What goes, as the end of the question.
        yes: Whether the answer was given before.

    Raises:
        typer.Exit: When it is not to go.
        Interrupted: When Ctrl-C was the answer (``INTERRUPTED``).
    """
    if yes or not sys.stdin.isatty():
        return
    try:
        goes = typer.confirm(f"This removes {what} for good. Go on?", err=True)
    except typer.Abort as end:
        err.print()  # the question has not ended its line
        if isinstance(end.__context__, KeyboardInterrupt):
            hint = "--dry-run says what would go; --yes answers."
            raise Interrupted("Nothing was removed.", code="INTERRUPTED", hint=hint) from None
        goes = False  # nobody is there to answer any more
    if not goes:
        err.print("Nothing was removed.")
        raise typer.Exit(1)


def print_dry(
    subject: Mapping[str, str],
    goes: Mapping[str, Any],
    *,
    as_json: bool,
    perhaps: Mapping[str, Any] | None = None,
) -> None:
    """Print what would go, by what it is; nothing is changed.

    Args:
        subject: Of what: its kind and name.
        goes: What would go for good.
        as_json: Whether a program reads it.
        perhaps: What would go from a server that answers, and stays at one that does not.
    """
    if as_json:
        told = {"goes_where_answered": perhaps} if perhaps else {}
        print_json({**subject, "dry_run": True, "goes": goes, **told})
        return
    out.print(
        f"Of {' '.join(f'{kind} {name}' for kind, name in subject.items())} would go for good:",
        markup=False,
        highlight=False,
    )
    _list(goes)
    if perhaps:
        out.print("Where Connect and Kafka answer these would go, too; elsewhere they stay:")
        _list(perhaps)


def _list(goes: Mapping[str, Any]) -> None:
    for what, names in goes.items():
        for name in names:
            out.print(f"  {what.replace('_', ' '):<16} {name}", markup=False, highlight=False, soft_wrap=True)
