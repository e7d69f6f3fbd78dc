"""A real stack for tests: its own home, its own ports, stopped and deleted at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from headrace.local.credentials import REDIS_ADMIN, Credentials
from headrace.local.endpoints import Endpoints
from headrace.local.home import Home
from headrace.local.stack import Stack

__all__ = ["HOMES", "RunningStack", "found_stack", "fresh_home", "running_stack"]

HOMES: list[Home] = []
"""The homes of the stacks that tests have running now."""


@dataclass(frozen=True, slots=True)
class RunningStack:
    """A stack that is up.

    Attributes:
        stack: To start, stop or ask its servers.
        endpoints: Where they are reached.
    """

    stack: Stack
    endpoints: Endpoints

    @property
    def redis_admin_url(self) -> str:
        """Redis as its administrator, who may change its settings."""
        known = Credentials.load(self.home.root)
        assert known is not None
        place = self.endpoints.redis_url.rpartition("@")[2]
        return f"redis://{REDIS_ADMIN}:{known.redis_admin}@{place}"

    @property
    def home(self) -> Home:
        """The stack's directory."""
        return self.stack.home


@contextmanager
def fresh_home() -> Iterator[Home]:
    """Yield an empty home that every account can pass into; stop what runs in it and delete it at the end."""
    # pytest's own directories are closed to others, and as root Postgres runs as another.
    base = Path(os.environ.get("HEADRACE_TEST_DIR", "/var/tmp"))
    parent = Path(tempfile.mkdtemp(prefix="headrace-test-", dir=base))
    parent.chmod(0o755)
    home = Home(parent / "home")
    HOMES.append(home)
    try:
        yield home
    finally:
        HOMES.remove(home)
        Stack(home).down(purge=True)
        shutil.rmtree(parent, ignore_errors=True)


@contextmanager
def running_stack(only: set[str] | None = None) -> Iterator[RunningStack]:
    """Yield a stack, or the part of it that ``only`` names, and stop it at the end."""
    with fresh_home() as home:
        stack = Stack(home)
        yield RunningStack(stack, stack.up(only=only))


def found_stack() -> AbstractContextManager[RunningStack] | None:
    """Return the stack that ``HEADRACE_TEST_STACK`` names, which belongs to who started the tests."""
    root = os.environ.get("HEADRACE_TEST_STACK")
    if not root:
        return None
    stack = Stack(Home(Path(root)))
    HOMES.append(stack.home)
    return nullcontext(RunningStack(stack, stack.endpoints()))
