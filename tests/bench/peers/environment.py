"""Environments of peers, each of its own, made once of pinned versions; and whether those are the newest."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uv import find_uv_bin

__all__ = ["environment", "newest", "pinned", "staleness"]

_STAMP = "complete"
_ASK_S = 60.0


def pinned(requirements: Path, package: str) -> str:
    """Return the version that a file of requirements pins.

    Raises:
        LookupError: It pins none.
    """
    found = re.search(rf"^{re.escape(package)}==(\S+)", requirements.read_text(), re.MULTILINE)
    if found is None:
        raise LookupError(f"{requirements.name} does not pin {package}")
    return found.group(1)


def environment(cache: Path, requirements: Path) -> Path:
    """Return the directory of an environment with exactly these packages, made now if it is not there.

    Raises:
        RuntimeError: It cannot be made, with the reason.
    """
    content = f"{sys.version}\n{requirements.read_text()}"
    home = cache / "peers" / f"{requirements.stem}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    if (home / _STAMP).exists():
        return home
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    _uv("venv", "--quiet", "--python", sys.executable, str(home))
    python = str(home / "bin" / "python")
    _uv("pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", str(requirements))
    (home / _STAMP).touch()
    return home


def newest(package: str, options: tuple[str, ...] = ()) -> str | None:
    """Return the newest version on the package index; None when no index answers."""
    try:
        told = _uv("pip", "compile", "--quiet", "--no-deps", "--no-header", *options, "-", given=package)
    except RuntimeError:
        return None
    found = re.search(rf"^{re.escape(package)}==(\S+)", told, re.MULTILINE)
    return found.group(1) if found else None


def staleness(package: str, used: str, known: str | None) -> Mapping[str, Any]:
    """Return what a reader is to know of a peer's version: nothing, or that it is not the newest."""
    if known is None:
        return {"newest_version": "not known: no package index answered"}
    if known == used:
        return {"newest_version": known}
    return {"newest_version": known, "stale": f"{package} {used} was measured, {known} is out"}


def _uv(*arguments: str, given: str | None = None) -> str:
    try:
        done = subprocess.run(
            [find_uv_bin(), *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=None if given is None else _ASK_S,
            env={**os.environ, "UV_NO_PROGRESS": "1"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(str(error)) from error
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-500:])
    return done.stdout
