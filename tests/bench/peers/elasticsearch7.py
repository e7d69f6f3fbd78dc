"""Elasticsearch 7, for a peer whose client takes no newer one: from Maven, on a Java of its age."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from headrace.local.account import unprivileged
from headrace.local.elasticsearch import HEAP_MIB, extract
from headrace.local.jvm import jvm_options
from headrace.local.lockfile import Artefact, Coordinate
from headrace.local.ports import HOST, is_free
from tests.bench.peers.distribution import distribution as peer_distribution
from tests.support.guarded_search import CONSOLE_LOGGING

__all__ = ["VERSION", "Node", "elasticsearch7"]

VERSION = "7.17.29"
_ZIP = Artefact(
    "bench",
    Coordinate.parse(f"org.elasticsearch.distribution.integ-test-zip:elasticsearch:{VERSION}:zip"),
    "841ee00be1a72ba8e707b5a2fb55f23fe7a4184369b4585393238b1c903eedaf",
    57_295_016,
)
_BOOT_S = 90.0


@dataclass(frozen=True, slots=True)
class Node:
    """A server that answers.

    Args:
        url: Its address.
        pid: Its process.
    """

    url: str
    pid: int


def _extract(archive: Path, target: Path) -> None:
    """Unpack what a node without security needs."""
    extract(archive, target)
    for directory in ("bin", "config", "plugins"):
        (target / directory).mkdir(exist_ok=True)


@contextmanager
def elasticsearch7(java: Path) -> Iterator[Node]:
    """Yield a server with the heap of the local stack's own, run by the Java at ``java``; then end it.

    Raises:
        RuntimeError: It cannot be had or does not start, with its last words.
    """
    distribution = peer_distribution(_ZIP, _extract)
    account = unprivileged()
    work = Path(tempfile.mkdtemp(prefix="headrace-es7-", dir=os.environ.get("HEADRACE_TEST_DIR", "/var/tmp")))
    try:
        port = next(port for port in range(29_200, 32_000) if is_free(port) and is_free(port + 100))
        _configure(work, port)
        if account is not None:
            for path in (work, *work.rglob("*")):
                os.chown(path, account.uid, account.gid)
        temporary = str(work / "tmp")
        command = [
            str(java / "bin" / "java"),
            *jvm_options(HEAP_MIB, work / "tmp"),
            f"-Des.path.home={distribution}",
            f"-Des.path.conf={work / 'config'}",
            "-Des.distribution.flavor=default",
            "-Des.distribution.type=zip",
            "-Dlog4j2.disable.jmx=true",
            "-Dlog4j2.formatMsgNoLookups=true",
            "-cp",
            f"{distribution}/lib/*",
            "org.elasticsearch.bootstrap.Elasticsearch",
        ]
        with (work / "out.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=work,
                # Where its native libraries unpack; it does not start without.
                env={"ES_TMPDIR": temporary, "LIBFFI_TMPDIR": temporary, "MALLOC_ARENA_MAX": "2"},
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        try:
            url = f"http://{HOST}:{port}"
            _wait(process, url, work / "out.log")
            yield Node(url, process.pid)
        finally:
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _configure(work: Path, port: int) -> None:
    for directory in ("config", "data", "logs", "tmp"):
        (work / directory).mkdir()
    (work / "config" / "log4j2.properties").write_text(CONSOLE_LOGGING)
    (work / "config" / "elasticsearch.yml").write_text(
        f"""\
cluster.name: peer
node.name: peer
discovery.type: single-node
network.host: {HOST}
http.port: {port}
transport.port: {port + 100}
path.data: {work / "data"}
path.logs: {work / "logs"}
cluster.routing.allocation.disk.threshold_enabled: false
# What a heap of this size with this collector has not yet collected must not count as used.
indices.breaker.total.use_real_memory: false
"""
    )


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _BOOT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/_cluster/health", timeout=3.0).status_code == httpx.codes.OK:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    words = log.read_text(errors="replace").strip()[-800:]
    raise RuntimeError(f"Elasticsearch {VERSION} does not answer; its last words: {words}")
