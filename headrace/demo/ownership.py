"""What belongs to the demo in a home that may hold other people's pipelines, and its removal."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.control import sink as sinks
from headrace.control import source as sources
from headrace.control.alone import worked_on
from headrace.control.context import Context
from headrace.control.registry import Registry, now_ms
from headrace.demo import shop
from headrace.model.errors import UsageError

__all__ = ["SINKS", "SOURCE", "Belongings", "only_demo"]

SOURCE = "shop"
SINKS = {"search": "elasticsearch", "cache": "redis", "lake": "delta"}
"""Name → kind of the demo's sinks."""

_SINCE = "since"
_MINE = {f"source {SOURCE}", *(f"sink {name}" for name in SINKS)}

Say = Callable[[str], None]


@contextmanager
def only_demo(run: Path) -> Iterator[None]:
    """Keep other demos away from a home, which would remove what this one makes.

    Args:
        run: The home's directory of locks.

    Raises:
        UsageError: When one is there already (``DEMO_RUNS``).
    """
    with (run / "demo.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise UsageError(
                f"A demo runs in this home already (process {lock.read() or 'unknown'}).",
                code="DEMO_RUNS",
                hint="Give the demo a home of its own: headrace demo --home DIRECTORY",
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


@dataclass(frozen=True, slots=True)
class Belongings:
    """The demo's source, sinks and database in one home.

    What the demo registers it notes in a file of its own, with the moment of registration, so that a
    namesake that somebody else registered is never taken for it.

    Args:
        path: That file.
        context: The installation.
        server_dsn: The local Postgres.
    """

    path: Path
    context: Context
    server_dsn: str

    @classmethod
    def of(cls, home: Path, context: Context, server_dsn: str) -> Belongings:
        """Return what the demo owns in a home."""
        return cls(home / "demo.json", context, server_dsn)

    def announce(self) -> None:
        """Note that what is registered under the demo's names from now on is the demo's.

        Called before registering, so that a demo that is killed meanwhile can be cleared away by the next.
        """
        self.path.write_text(json.dumps({_SINCE: now_ms()}))

    def note(self) -> None:
        """Write down what is registered under the demo's names now; called when registering ends or fails."""
        self.path.write_text(json.dumps(self._registered()))

    def known(self) -> bool:
        """Return whether anything bears the demo's names, whoever registered it."""
        return bool(self._registered())

    def complete(self) -> bool:
        """Return whether source and all sinks are registered, by the demo."""
        return self._registered() == self._noted() and len(self._noted()) == 1 + len(SINKS)

    def refuse_strangers(self) -> None:
        """Do nothing when all that bears the demo's names is the demo's own.

        Raises:
            UsageError: When something is not (``DEMO_NAME_TAKEN``).
        """
        noted = self._noted()
        since = noted.get(_SINCE)
        strange = [
            what
            for what, when in self._registered().items()
            if noted.get(what) != when and (since is None or when < since)
        ]
        if strange:
            raise UsageError(
                f"This home has a {' and a '.join(strange)} that the demo did not make.",
                code="DEMO_NAME_TAKEN",
                hint="Give the demo a home of its own: headrace demo --home DIRECTORY",
            )
        shop.refuse_strangers(self.server_dsn)

    def remove(self, say: Say = lambda _: None) -> None:
        """Remove the demo's sinks with their data, its source and its database; idempotent.

        Raises:
            HeadraceError: When a server that holds part of it does not let go of it.
        """
        registered = self._registered()
        for name in SINKS:
            if f"sink {name}" in registered:
                say(f"removing sink {name}")
                sinks.remove(self.context, name, purge=True)
        if f"source {SOURCE}" in registered:
            say(f"removing source {SOURCE}")
            sources.remove(self.context, SOURCE)
        say("removing the shop's database")
        shop.drop(self.server_dsn)
        self.path.unlink(missing_ok=True)

    def others(self) -> set[str]:
        """Return the home's sources and sinks, and those being added, that do not bear the demo's names."""
        return (self._all().keys() | worked_on(self.context)) - _MINE

    def _registered(self) -> dict[str, int]:
        return {what: when for what, when in self._all().items() if what in _MINE}

    def _all(self) -> dict[str, int]:
        registry = Registry(self.context.registry)
        found = {f"source {entry.name}": entry.created_ms for entry in registry.sources()}
        return found | {f"sink {entry.name}": entry.created_ms for entry in registry.sinks()}

    def _noted(self) -> dict[str, int]:
        try:
            noted: dict[str, int] = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return noted
