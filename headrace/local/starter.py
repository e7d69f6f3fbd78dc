"""Starting the chosen servers of a stack at once, each of them repaired, awaited and told of on its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from headrace.local import launch
from headrace.local.events import OnEvent, StackEvent
from headrace.local.ports import check_free
from headrace.local.server import Server, Site
from headrace.model.errors import HeadraceError, StackError
from headrace.observe import pidfile

__all__ = ["NEEDS", "Starter"]

NEEDS = {"connect": frozenset({"kafka"})}
"""What a server cannot run without. Both are started at once all the same: Connect waits for its broker."""

_BOOT_SECONDS = 180.0
_ANSWER_SECONDS = 15.0
_POLL_S = 0.2


def _as_told(name: str, error: Exception) -> HeadraceError:
    """Return an error that a person can act on, whatever has kept a server from being started."""
    if isinstance(error, HeadraceError):
        return error
    told = StackError(
        f"{name} could not be started: {error}", code="STACK_NOT_STARTED", hint="df -h; ulimit -a"
    )
    told.__cause__ = error
    return told


@dataclass(slots=True)
class Starter:
    """One ``up``.

    Attributes:
        site: The stack's.
        tell: Told of every step.
        ports_file: Where the ports are kept, for messages.
        failed: Names of the servers that could not be started.
        untrained: Names of the started servers that would start faster after training.
        ready: Names of the servers that answer.
    """

    site: Site
    tell: OnEvent
    ports_file: Path
    failed: set[str] = field(default_factory=set)
    untrained: set[str] = field(default_factory=set)
    ready: set[str] = field(default_factory=set)

    def start(self, servers: Sequence[Server]) -> None:
        """Start what does not run; return when all of it answers.

        Raises:
            HeadraceError: The first failure, once every other server answers or has failed, too.
        """
        with ThreadPoolExecutor(len(servers)) as pool:
            errors = [error for error in pool.map(self._told, servers) if error is not None]
        # What was given up because of another's failure is no news.
        errors.sort(key=lambda error: error.code == "STACK_CANCELLED")
        if errors:
            raise errors[0]

    def _told(self, server: Server) -> HeadraceError | None:
        began = time.monotonic()
        try:
            state = self._bring_up(server)
        except Exception as unforeseen:  # noqa: BLE001 - else those that need it would wait for it for ever
            error = _as_told(server.name, unforeseen)
            self.failed.add(server.name)
            self.tell(StackEvent(server.name, "failed", time.monotonic() - began, error.message))
            return error
        self.ready.add(server.name)
        port = self.site.ports[server.ports[0]]
        self.tell(StackEvent(server.name, state, time.monotonic() - began, f"port {port}"))
        return None

    def _bring_up(self, server: Server) -> str:
        path = self.site.home.pidfile(server.name)
        if pidfile.alive(path) is not None:
            try:
                launch.wait_ready(server, self.site, timeout=self._patience(server))
            except StackError:
                # It hangs, or has died meanwhile: start it anew.
                self.tell(StackEvent(server.name, "starting", 0.0, "did not answer; restarting it"))
                pidfile.stop(path, grace=2.0, request=server.stop_signal)
            else:
                return "running"
        self.tell(StackEvent(server.name, "starting", 0.0))
        check_free(server.name, {name: self.site.ports[name] for name in server.ports}, self.ports_file)
        try:
            self._launch(server)
        except StackError as error:
            plan = server.prepare(self.site)
            if error.code != "STACK_SERVER_DIED" or plan.aot is None or not plan.aot.usable():
                raise
            # Nothing but speed depends on the cache, so it is the first thing to do without.
            plan.aot.forget()
            self._launch(server)
        return "ready"

    def _patience(self, server: Server) -> float:
        """Return how long one that runs may take to answer: once more its time to boot when it was late."""
        late = self._late(server)
        known = pidfile.read(late) == pidfile.read(self.site.home.pidfile(server.name))
        late.unlink(missing_ok=True)
        return _BOOT_SECONDS if known else _ANSWER_SECONDS

    def _late(self, server: Server) -> Path:
        return self.site.home.pidfile(server.name).with_suffix(".late")

    def _launch(self, server: Server) -> None:
        """Start a server; one that could not wait so long for another is started again when that answers."""
        needs = NEEDS.get(server.name, frozenset())
        early = not needs <= self.ready
        try:
            self._launch_once(server, needs)
        except StackError as error:
            if error.code != "STACK_SERVER_DIED" or not early:
                raise
            while not needs <= self.ready:
                if not needs.isdisjoint(self.failed):
                    raise
                time.sleep(_POLL_S)
            self.tell(StackEvent(server.name, "starting", 0.0, "once more: what it needs was not there yet"))
            self._launch_once(server, needs)

    def _launch_once(self, server: Server, needs: frozenset[str]) -> None:
        plan = server.prepare(self.site)
        launch.start(server, plan, self.site.home)
        try:
            launch.wait_ready(
                server,
                self.site,
                timeout=_BOOT_SECONDS,
                # Connect would wait a minute for a broker that never comes.
                cancelled=lambda: not needs.isdisjoint(self.failed),
            )
        except HeadraceError as error:
            path = self.site.home.pidfile(server.name)
            if error.code == "STACK_SERVER_SLOW" and (pid := pidfile.alive(path)) is not None:
                with suppress(ProcessLookupError):
                    pidfile.write(self._late(server), pid)
            else:
                pidfile.stop(path, request=server.stop_signal)
            raise
        if plan.aot is not None and not plan.aot.usable():
            self.untrained.add(server.name)
