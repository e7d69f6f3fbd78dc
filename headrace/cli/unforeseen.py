"""Errors that nobody foresaw, as what every other error is: a sentence, a code, a hint."""

from __future__ import annotations

import os
import shlex
import traceback
from datetime import datetime, timezone
from pathlib import Path

from headrace.cli.home import home_of
from headrace.config.secrets import mask_text
from headrace.model.errors import EnvironmentError_, HeadraceError

__all__ = ["of_the_system", "unforeseen"]

_LOG = "commands.log"


def of_the_system(error: OSError) -> EnvironmentError_:
    """Return what the operating system has refused, with the path that it is about."""
    why = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return EnvironmentError_(
            f"The operating system refuses: {mask_text(why)}.", code="SYSTEM_REFUSES", hint="df -h; ulimit -a"
        )
    path = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else str(error.filename)
    return EnvironmentError_(
        f"{path} cannot be used: {why}.",
        code="SYSTEM_REFUSES",
        hint=shlex.join(["ls", "-ld", str(Path(path).parent), path]),
    )


def unforeseen(error: Exception, home: Path | None) -> HeadraceError:
    """Return an error of which no command knows; its traceback goes into a file of the home at ``home``."""
    said = " ".join(mask_text(str(error)).split())[:300]
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    try:
        log = _written(error, home_of(home).logs / _LOG)
    except (OSError, HeadraceError) as other:
        why = other.strerror if isinstance(other, OSError) else other
        return HeadraceError(
            f"The command met what it does not know: {what}. No traceback could be written: {why}.",
            code="INTERNAL",
            hint="This is a defect. Report it with the command that was run.",
        )
    return HeadraceError(
        f"The command met what it does not know: {what}. The traceback is in {log}.",
        code="INTERNAL",
        hint=f"cat {shlex.quote(str(log))}; this is a defect, to be reported with what is told there.",
    )


def _written(error: Exception, log: Path) -> Path:
    log.parent.mkdir(mode=0o700, exist_ok=True)
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    log.touch(mode=0o600)
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{at} {mask_text(told)}\n")
    return log
