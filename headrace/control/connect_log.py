"""What the local Connect has written to its log of a source: why a connector that runs began again.

Connect's own words tell of what has failed. Of an error after which the connector tries again by itself only
the log tells, and only that of the local stack can be read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from headrace.config.secrets import mask_text

__all__ = ["last_error"]

_MOST_BYTES = 1 << 20
_AT = "%Y-%m-%d %H:%M:%S.%f"
_BEGINS = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ")
_CAUSE = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+[\w$]+: (.+)$")
_REFUSED = re.compile(r"^Caused by: [\w.$]*PSQLException: ((?:FATAL|ERROR|PANIC): .+)$")
_BEFORE = timedelta(seconds=3)


def last_error(log: Path, connector: str, since_ms: int) -> str:
    """Return the cause of the last error after which a connector has tried again; empty when none is told.

    The line that names the connector often tells only that its session is over. What the database said stands
    some lines above it, under no name, and is taken for it unless another connector has failed just then.

    Args:
        log: Of a worker that tells times in UTC, as the local stack has it do.
        connector: Its name.
        since_ms: What is older is of another connector of that name. Unix milliseconds.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    since = datetime.fromtimestamp(since_ms / 1000, timezone.utc).strftime(_AT)
    mine = f"{{id={connector}-"
    named = [n for n, line in enumerate(lines) if _fails(line) and mine in line and line > since]
    if not named:
        return ""
    first, end = _window(lines, named[-1])
    alone = all(mine in line for line in lines[first:end] if _fails(line))
    causes = [found[1] for line in lines[named[-1] + 1 : end] if (found := _CAUSE.match(line))]
    said = [found[1] for line in lines[first:end] if (found := _REFUSED.match(line))] if alone else []
    told = said[-1] if said else causes[-1] if causes else ""
    return mask_text(told)[:300]


def _fails(line: str) -> bool:
    return "failed to poll records" in line and _BEGINS.match(line) is not None


def _window(lines: Sequence[str], named: int) -> tuple[int, int]:
    """Return where the lines of the seconds before an entry begin, and where the entry ends."""
    from_ = (datetime.strptime(lines[named][:23], _AT) - _BEFORE).strftime(_AT)  # noqa: DTZ007 - of one clock
    first = named
    while first > 0 and (not _BEGINS.match(lines[first]) or lines[first][:23] >= from_):
        first -= 1
    end = next((n for n in range(named + 1, len(lines)) if _BEGINS.match(lines[n])), len(lines))
    return first, end
