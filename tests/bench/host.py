"""Where a run took place: the machine, how busy it was, and which code was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

__all__ = ["ROOT", "Commit", "commit", "host", "load"]

ROOT = Path(__file__).parents[2]

_STATUS = ("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
"""A run writes into the pages itself."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The code that was measured.

    Args:
        sha: Its commit; empty where there is no git.
        changed: Whether files other than pages differed from that commit.
    """

    sha: str
    changed: bool


def commit() -> Commit:
    """Return what stands in the working tree."""
    with suppress(OSError, subprocess.CalledProcessError):
        return Commit(_git("rev-parse", "HEAD"), bool(_git(*_STATUS)))
    return Commit("", True)


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def host() -> Mapping[str, Any]:
    """Return what a reader has to know of the machine; nothing that names it."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_mib": psutil.virtual_memory().total >> 20,
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def load() -> float:
    """Return how many processes wanted a core in the last minute, on average."""
    return round(os.getloadavg()[0], 2)
