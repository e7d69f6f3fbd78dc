"""The local stack: real servers in one home, started together, repaired one by one, stopped in order."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from headrace.local import artefacts, launch, training
from headrace.local.account import unprivileged
from headrace.local.connect import Connect
from headrace.local.credentials import Credentials
from headrace.local.driver import driver_cache
from headrace.local.elasticsearch import Elasticsearch
from headrace.local.endpoints import Endpoints, endpoints_of
from headrace.local.events import OnEvent, ServerStatus, StackEvent
from headrace.local.home import Home
from headrace.local.kafka import Kafka
from headrace.local.ports import load_or_pick, load_ports
from headrace.local.postgres import Postgres
from headrace.local.redis import Redis
from headrace.local.server import Server, Site
from headrace.local.starter import NEEDS, Starter
from headrace.model.errors import UsageError
from headrace.observe import pidfile

__all__ = ["ENGINE", "SERVERS", "Stack"]

SERVERS: tuple[Server, ...] = (Postgres(), Kafka(), Connect(), Elasticsearch(), Redis())
ENGINE = "engine"
"""Pid file of the process that runs the sinks: others write it, we show it and stop it first."""


@dataclass(frozen=True, slots=True)
class Stack:
    """The servers of one home.

    Attributes:
        home: Where the stack lives; made by the first :meth:`up`.
    """

    home: Home

    def up(
        self, on_event: OnEvent | None = None, only: set[str] | None = None, *, verify: bool = False
    ) -> Endpoints:
        """Start what does not run and wait until all of it answers; harmless to repeat.

        A server that was killed is repaired and started; those that run are left alone.

        Args:
            on_event: Told of every step, from several threads but never from two at once.
            only: Names of the servers to start, and what they need is started too; None for all.
            verify: Hash every cached file again.

        Raises:
            HeadraceError: The first thing that went wrong; what had started goes on running.
        """
        chosen = self._choose(only)
        tell = _serialised(on_event)
        # Decided before anything starts, so that a mistake of the environment is told at once.
        account = unprivileged()
        self.home.create(passable=account is not None)
        with self._locked():
            launch.check_disk(self.home)
            files = self._resolve(chosen, tell, everything=only is None, verify=verify)
            ports = load_or_pick(self.home.ports_file)
            site = Site(self.home, ports, files, Credentials.load_or_make(self.home.root), account)
            starter = Starter(site, tell, self.home.ports_file)
            starter.start(chosen)
            if only is None and (starter.untrained or _untrained(files)):
                training.start_training(self.home)
        return self.endpoints()

    def down(self, purge: bool = False, on_event: OnEvent | None = None) -> list[str]:
        """Stop what this stack started and nothing else, in order, in at most 15 seconds.

        Args:
            purge: Delete the home and all data in it, too.
            on_event: Told of every process that was stopped.

        Returns:
            Names of the processes that had to be killed.

        Raises:
            UsageError: ``HOME_NOT_OURS``: there is something else at the home's place.
        """
        tell = _serialised(on_event)
        killed: list[str] = []

        def stop(name: str, grace: float, server: Server | None) -> None:
            began = time.monotonic()
            path = self.home.pidfile(name)
            lived = pidfile.alive(path) is not None
            willing = (
                pidfile.stop(path, grace=grace, request=server.stop_signal)
                if server
                else pidfile.stop(path, grace=grace)
            )
            if not willing:
                killed.append(name)
            if lived:
                tell(StackEvent(name, "stopped", time.monotonic() - began))

        if not self.home.exists():
            # Servers of one's own: the engine is all that is ours.
            stop(ENGINE, 4.0, None)
            if purge:
                self.home.purge()
            return killed
        with self._locked():
            pidfile.stop(self.home.pidfile(training.NAME), grace=0.2)
            # Who writes to others ends first: the engine, then Connect, then the stores.
            stop(ENGINE, 4.0, None)
            by_name = {server.name: server for server in SERVERS}
            stop("connect", 4.0, by_name.pop("connect"))
            with ThreadPoolExecutor(len(by_name)) as pool:
                for job in [pool.submit(stop, name, 5.0, server) for name, server in by_name.items()]:
                    job.result()
            if purge:
                self.home.purge()
        return killed

    def status(self) -> list[ServerStatus]:
        """Return what is known of every server, and of the engine if there is one."""
        site = self._known_site()
        with ThreadPoolExecutor(len(SERVERS)) as pool:
            found = list(pool.map(lambda server: self._status_of(server, site), SERVERS))
        if pidfile.read(self.home.pidfile(ENGINE)) is not None:
            pid, rss, uptime = self._process(ENGINE)
            state = "running" if pid else "died"
            found.append(ServerStatus(ENGINE, state, pid, None, rss, "", self.home.log(ENGINE), uptime))
        return found

    def endpoints(self) -> Endpoints:
        """Return the addresses of the servers, whether or not they run now.

        Raises:
            StackError: ``STACK_NOT_UP``: this stack was never started.
        """
        return endpoints_of(self.home)

    # ------------------------------------------------------------------ starting

    def _choose(self, only: set[str] | None) -> list[Server]:
        if only is None:
            return list(SERVERS)
        names = {server.name for server in SERVERS}
        if unknown := only - names:
            raise UsageError(
                f"There is no server called {', '.join(sorted(unknown))}.",
                code="STACK_UNKNOWN_SERVER",
                hint=f"The servers are {', '.join(sorted(names))}.",
            )
        wanted = only.union(*(NEEDS.get(name, ()) for name in only))
        return [server for server in SERVERS if server.name in wanted]

    def _resolve(
        self, chosen: Sequence[Server], tell: OnEvent, *, everything: bool, verify: bool
    ) -> artefacts.Files:
        groups = {group for server in chosen for group in server.groups}
        if everything:
            # Whoever starts all of it will run sinks; then the second start needs no network either.
            groups.add("spark")
        began = time.monotonic()
        lacking = artefacts.missing(groups, verify=verify)
        total, arrived = sum(item.size for item in lacking), 0

        def on_progress(name: str, size: int) -> None:
            nonlocal arrived
            arrived += size
            share = f"{arrived / 1e6:.0f} of {total / 1e6:.0f} MB"
            tell(StackEvent("artefacts", "resolving", time.monotonic() - began, f"{share}, {name}"))

        if lacking:
            tell(StackEvent("artefacts", "resolving", 0.0, f"{len(lacking)} files, {total / 1e6:.0f} MB"))
        files = artefacts.resolve(groups, on_progress)
        if lacking:
            tell(StackEvent("artefacts", "ready", time.monotonic() - began, f"{total / 1e6:.0f} MB"))
        return files

    # ------------------------------------------------------------------ what is known

    def _known_site(self) -> Site | None:
        ports, credentials = load_ports(self.home.ports_file), Credentials.load(self.home.root)
        if ports is None or credentials is None or not self.home.exists():
            return None
        return Site(self.home, ports, {}, credentials, None)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the home, so that two commands do not start or stop the same server."""
        self.home.run.mkdir(parents=True, exist_ok=True)
        with (self.home.run / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _status_of(self, server: Server, site: Site | None) -> ServerStatus:
        pid, rss, uptime = self._process(server.name)
        if pid is None or site is None:
            state = "died" if pidfile.read(self.home.pidfile(server.name)) else "stopped"
        else:
            try:
                server.probe(site)
                state = "running"
            except Exception:  # noqa: BLE001 - whatever it is, it does not answer
                state = "unresponsive"
        port = site.ports[server.ports[0]] if site else None
        return ServerStatus(
            server.name, state, pid, port, rss, server.version, self.home.log(server.name), uptime
        )

    def _process(self, name: str) -> tuple[int | None, float | None, float | None]:
        pid = pidfile.alive(self.home.pidfile(name))
        if pid is None:
            return None, None, None
        try:
            process = psutil.Process(pid)
            family = [process, *process.children(recursive=True)]
            rss = sum(_resident(member) for member in family)
            return pid, round(rss / (1 << 20), 1), round(time.time() - process.create_time(), 1)
        except psutil.Error:
            return None, None, None


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _untrained(files: Mapping[str, Sequence[Path]]) -> bool:
    cache = driver_cache(files["spark"])
    return cache is not None and not cache.usable()


def _serialised(on_event: OnEvent | None) -> OnEvent:
    """Wrap a listener so that it is called by one thread at a time; without one do nothing."""
    if on_event is None:
        return lambda event: None
    turn = threading.Lock()

    def tell(event: StackEvent) -> None:
        with turn:
            on_event(event)

    return tell
