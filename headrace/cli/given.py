"""Options that stand on a command line, and would do nothing there."""

from __future__ import annotations

import typer

from headrace.model.errors import UsageError

__all__ = ["refuse_unused"]


def refuse_unused(context: typer.Context, *names: str, where: str, hint: str) -> None:
    """Refuse options that somebody has given where they do nothing; a default is none that was given.

    Args:
        context: Of the command.
        names: The parameters that do nothing.
        where: When that is so, as the end of a sentence.
        hint: What does something.

    Raises:
        UsageError: When one was given (``OPTION_UNUSED``).
    """
    written = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    given = [written[name] for name in names if _stands_there(context, name)]
    if given:
        do = "does" if len(given) == 1 else "do"
        raise UsageError(f"{', '.join(given)} {do} nothing {where}.", code="OPTION_UNUSED", hint=hint)


def _stands_there(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
