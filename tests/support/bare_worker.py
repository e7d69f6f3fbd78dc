"""A second worker of Connect beside the stack's, which lacks Debezium and our own classes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from headrace.control.kafka import Kafka
from headrace.observe import pidfile
from tests.support.own_servers import free_port, shown
from tests.support.stack import RunningStack
from tests.support.waiting import until

__all__ = ["bare_worker"]

_GROUP = "bare-connect"


@contextmanager
def bare_worker(stack: RunningStack, folder: Path) -> Iterator[str]:
    """Yield the address of a worker that has what Kafka itself brings; end it and remove its topics.

    Args:
        stack: Whose Kafka it uses, and whose worker's settings but for the plugins.
        folder: For its settings and its log.
    """
    port = free_port()
    command, known = _of_the_stack(stack)
    (folder / "none").mkdir(parents=True)
    settings = {
        **dict(line.split("=", 1) for line in known.splitlines() if line and not line.startswith("#")),
        "plugin.path": str(folder / "none"),
        "listeners": f"http://127.0.0.1:{port}",
        "rest.advertised.port": str(port),
    }
    lines = (f"{name}={value.replace('headrace-connect', _GROUP)}\n" for name, value in settings.items())
    file, log = folder / "worker.properties", folder / "worker.log"
    file.write_text("".join(lines))
    given = httpx.URL(stack.endpoints.connect_url).copy_with(port=port)
    with shown(log), log.open("wb") as output:
        process = subprocess.Popen(
            [*command[:-1], str(file)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            until(lambda: _answers(given))
            yield str(given)
        finally:
            process.kill()
            process.wait()
            kafka = Kafka(stack.endpoints.kafka_bootstrap)
            kafka.delete([name for name in kafka.names() if name.startswith(_GROUP)])


def _of_the_stack(stack: RunningStack) -> tuple[list[str], str]:
    """Return the command of the stack's worker without what is its own, and its settings."""
    pid = pidfile.alive(stack.home.pidfile("connect"))
    assert pid is not None
    words = psutil.Process(pid).cmdline()
    own = ("-Dlog4j2.configurationFile=", "-XX:AOTCache")
    command = [word for word in words if not word.startswith(own)]
    at = command.index("-cp") + 1
    command[at] = os.pathsep.join(
        jar for jar in command[at].split(os.pathsep) if not Path(jar).name.startswith("headrace-connect-")
    )
    return command, Path(words[-1]).read_text()


def _answers(url: httpx.URL) -> bool:
    login = httpx.BasicAuth(url.username, url.password)
    try:
        return httpx.get(f"{url.scheme}://{url.host}:{url.port}/connectors", auth=login, timeout=5).is_success
    except httpx.TransportError:
        return False
