"""What the local Connect has written to its log of a source: why a connector that runs began again.

Connect's own words tell of what has failed. Of an error after which the connector tries again by itself only
the log tells, and only that of the local stack can be read.
"""

from __future__ import annotations

import os
import re
from datetime import datetime, timezone
from pathlib import Path

from headrace.config.secrets import mask_text

__all__ = ["last_error"]

_MOST_BYTES = 1 << 20
_CAUSE = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+[\w$]+: (.+)$")


def last_error(log: Path, source: str, since_ms: int) -> str:
    """Return the cause of the last error that is told of a source's connector; empty when none is.

    Args:
        log: Of a worker that marks its lines with the source, and tells their times in UTC, as the local
            stack has it do.
        source: The source's name.
        since_ms: What is older is of another source of that name. Unix milliseconds.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    mark = f"[{source}] "
    since = datetime.fromtimestamp(since_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")
    begins = [n for n, line in enumerate(lines) if " ERROR " in line and mark in line and line > since]
    if not begins:
        return ""
    cause = lines[begins[-1]].partition(mark)[2]
    for line in lines[begins[-1] + 1 :]:
        if line[:1].isdigit():  # the next entry: each begins with its time
            break
        if found := _CAUSE.match(line):
            cause = found.group(1)
    return mask_text(cause)[:300]
