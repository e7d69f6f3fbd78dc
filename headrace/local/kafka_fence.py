"""Has Kafka's controller note that the broker is gone, before a broker that was killed comes back.

A broker that was killed is still the leader of its partitions when it starts, until its old session expires.
In that time it reads which transactions are to be committed, and cannot reach itself to do so. When the
session expires no partition has a leader, which it takes for partitions that are deleted: the transaction
counts as complete, its records are never shown, and neither is what comes after them. A controller that runs
alone lets the session expire before there is a broker.
"""

from __future__ import annotations

import time
from pathlib import Path

from headrace.local.home import Home
from headrace.local.launch import start
from headrace.local.server import Launch, Server
from headrace.observe import pidfile

__all__ = ["controller_settings", "fence", "was_killed"]

_WITHIN_S = 30.0
_FENCED_WITHIN_S = 3.0
_OF_THE_BROKER = ("advertised.listeners", "inter.broker.listener.name", "listener.name.clients.")
_ALONE = {
    "process.roles": "controller",
    "broker.session.timeout.ms": "100",
    "broker.heartbeat.interval.ms": "50",
}
_ACTIVE, _FENCED = "Activated periodic tasks", "fenced=1"


def was_killed(data: Path) -> bool:
    """Return whether the broker of a data directory has run, and ended without putting it in order."""
    return (data / "__cluster_metadata-0").is_dir() and not (data / ".kafka_cleanshutdown").exists()


def controller_settings(settings: str) -> str:
    """Return the settings of the controller alone, with a session that expires at once."""
    lines = []
    for line in settings.splitlines():
        name, equals, value = line.partition("=")
        if name.startswith(_OF_THE_BROKER):
            continue
        if name == "listeners":
            value = next(one for one in value.split(",") if one.startswith("CONTROLLER:"))
        lines.append(f"{name}{equals}{_ALONE.get(name, value)}\n")
    return "".join(lines)


def fence(server: Server, launch: Launch, home: Home, log: Path) -> None:
    """Run the controller alone until it has noted that the broker is gone.

    Where that is not seen in time, the broker starts all the same. Who is killed meanwhile leaves a pid file.

    Args:
        server: Whose pid file notes the controller.
        launch: Starts it, with :func:`controller_settings`.
        home: Of the server.
        log: The file to which it logs.
    """
    log.unlink(missing_ok=True)
    start(server, launch, home)
    noted = home.pidfile(server.name)
    try:
        _wait(noted, log)
    finally:
        pidfile.stop(noted, grace=10.0)


def _wait(noted: Path, log: Path) -> None:
    began, active = time.monotonic(), None
    while pidfile.alive(noted) and time.monotonic() - began < _WITHIN_S:
        text = log.read_text("utf-8", "replace") if log.exists() else ""
        _, active_line, since = text.partition(_ACTIVE)
        if _FENCED in since:
            return
        if active_line:
            active = active or time.monotonic()
            if time.monotonic() - active > _FENCED_WITHIN_S:
                return  # it had been noted before
        time.sleep(0.05)
