"""The account that servers run under when root starts them."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.model.errors import EnvironmentError_

__all__ = [
    "Account",
    "check_reachable",
    "give",
    "passes",
    "private",
    "run_as",
    "surroundings",
    "unprivileged",
]

_KEPT = ("LANG", "LD_LIBRARY_PATH", "PATH", "TZ")


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine."""

    name: str
    uid: int
    gid: int


def unprivileged() -> Account | None:
    """Return the account to give privileges up for; None when we are no root and need none.

    It is ``HEADRACE_USER`` if set, else ``headrace`` if the machine has such a user, else ``nobody``.

    Raises:
        EnvironmentError_: ``STACK_NO_ACCOUNT``.
    """
    if os.geteuid() != 0:
        return None
    named = os.environ.get("HEADRACE_USER")
    for name in [named] if named else ["headrace", "nobody"]:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name, entry.pw_uid, entry.pw_gid)
    raise EnvironmentError_(
        f"No server runs as root, and there is no user {named or 'nobody'} to run them as.",
        code="STACK_NO_ACCOUNT",
        hint="Run headrace as an ordinary user, or set HEADRACE_USER to an unprivileged one.",
    )


def surroundings() -> dict[str, str]:
    """Return the environment of a server: of ours, what it needs to be found and to speak.

    The rest may be secrets of whoever starts it, or options that are meant for other programs.
    """
    kept = (name for name in os.environ if name in _KEPT or name.startswith("LC_"))
    return {name: os.environ[name] for name in kept}


def run_as(account: Account | None, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program as a server's account, as ourselves where there is none, and return what it says."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd="/",
        env=surroundings(),
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


def give(path: Path, account: Account | None) -> None:
    """Make ``path`` the account's; without one it stays ours."""
    if account is not None:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def private(directory: Path, account: Account | None) -> Path:
    """Make a directory, or what became of it, the account's alone, with all that is in it; return it."""
    directory.mkdir(parents=True, exist_ok=True)
    if account is not None and directory.stat().st_uid != account.uid:
        for folder, _, files in os.walk(directory):
            for name in files:
                give(Path(folder) / name, account)
            give(Path(folder), account)
    directory.chmod(0o700)
    return directory


def passes(account: Account, path: Path) -> bool:
    """Say whether an account can pass the directory ``path``, and all above it."""
    # Asked of the system, not computed from mode bits: access lists and mounts have a say, too.
    answer = subprocess.run(
        ["/bin/sh", "-c", 'test -x "$0"', str(path)],
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        cwd="/",
        check=False,
    )
    return answer.returncode == 0


def check_reachable(account: Account, path: Path, variable: str) -> None:
    """See that an account can pass every directory above ``path``.

    Raises:
        EnvironmentError_: ``STACK_HOME_UNREACHABLE`` with the directory that is in the way.
    """
    for directory in [*reversed(path.parents), path]:
        if not passes(account, directory):
            raise EnvironmentError_(
                f"The servers run as {account.name}, who cannot pass {directory} on the way to {path}.",
                code="STACK_HOME_UNREACHABLE",
                hint=f"Set {variable} to a directory everybody can pass, e.g. under /var/lib or /var/tmp.",
            )
