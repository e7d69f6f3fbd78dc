"""Starting a server's process so that it outlives us, and waiting until it answers."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from headrace.local.account import surroundings
from headrace.local.home import Home
from headrace.local.server import Launch, Server, Site
from headrace.model.errors import EnvironmentError_, HeadraceError, StackError
from headrace.observe import pidfile

__all__ = ["MINIMUM_FREE_BYTES", "check_disk", "start", "tail", "wait_ready"]

MINIMUM_FREE_BYTES = 1 << 30
_LOG_BYTES = 10 << 20
_POLL_SECONDS = 0.1


def check_disk(home: Home) -> None:
    """See that the home's disk has room to work in.

    Raises:
        EnvironmentError_: ``STACK_DISK_FULL``.
    """
    free = shutil.disk_usage(home.root).free
    if free < MINIMUM_FREE_BYTES:
        raise EnvironmentError_(
            f"{home.root} has {free >> 20} MiB of free disk; the stack needs {MINIMUM_FREE_BYTES >> 20} MiB.",
            code="STACK_DISK_FULL",
            hint="Free some space, or name a home on another disk with --home or HEADRACE_HOME.",
        )


def start(server: Server, launch: Launch, home: Home) -> int:
    """Start a server's process in a session of its own and note it in its pid file; return its pid."""
    log = _output(server, home)
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))
    account = launch.account
    with open(log, "ab", opener=_private) as output:
        process = subprocess.Popen(
            launch.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A terminal that closes, or Ctrl-C in it, is none of the servers' business.
            start_new_session=True,
            # glibc's arena per core and thread costs a Java server tens of megabytes.
            env={**surroundings(), "MALLOC_ARENA_MAX": "2", **launch.env},
            cwd="/",
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            umask=0o077,
        )
    # If it has ended already, wait_ready says so, with its last words.
    with contextlib.suppress(ProcessLookupError):
        pidfile.write(home.pidfile(server.name), process.pid)
    # Whether it lives is read from the pid file from here on; this object would only warn at its collection.
    process.returncode = 0
    return process.pid


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _output(server: Server, home: Home) -> Path:
    """Return the file that takes a server's standard output."""
    return home.logs / f"{server.name}.out" if server.logs_itself else home.log(server.name)


def tail(server: Server, home: Home, since: float, lines: int = 8) -> str:
    """Return the last lines a server wrote to the files it touched since a moment (seconds since 1970)."""
    text = ""
    for path in dict.fromkeys((home.log(server.name), _output(server, home))):
        try:
            if path.stat().st_mtime < since:
                continue
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 8192))
                text += file.read().decode("utf-8", errors="replace")
        except OSError:
            continue
    return "\n".join(text.splitlines()[-lines:])


def wait_ready(
    server: Server, site: Site, *, timeout: float, cancelled: Callable[[], bool] = lambda: False
) -> None:
    """Wait until a server answers its probe.

    Raises:
        StackError: ``STACK_SERVER_DIED`` with the last lines of its log, ``STACK_SERVER_SLOW``,
            ``STACK_CANCELLED``.
        EnvironmentError_: ``STACK_DISK_FULL``: it died of a full disk.
    """
    began, deadline = time.time(), time.monotonic() + timeout
    while True:
        if pidfile.alive(site.home.pidfile(server.name)) is None:
            raise _died(server, site.home, began - 1.0)
        try:
            server.probe(site)
        except Exception as error:  # noqa: BLE001 - every client library has its own idea of "not yet"
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        else:
            return
        if cancelled():
            raise StackError(f"The start of {server.name} was given up.", code="STACK_CANCELLED")
        if time.monotonic() > deadline:
            raise StackError(
                f"{server.name} runs but has not answered for {timeout:.0f} s: {reason}",
                code="STACK_SERVER_SLOW",
                hint=f"Its log is {site.home.log(server.name)}; run `headrace up` again to go on waiting.",
            )
        time.sleep(_POLL_SECONDS)


def _died(server: Server, home: Home, since: float) -> HeadraceError:
    words = tail(server, home, since, lines=40)
    last = "\n".join(words.splitlines()[-8:])
    if "No space left on device" in words:
        return EnvironmentError_(
            f"{server.name} stopped because the disk of {home.root} is full.",
            code="STACK_DISK_FULL",
            hint="Free some space, then run `headrace up` again.",
        )
    return StackError(
        f"{server.name} ended while it was starting. Its last words:\n{last or '(none)'}",
        code="STACK_SERVER_DIED",
        hint=f"Its log is {home.log(server.name)}.",
    )
