"""Training: start the Java servers once beside the real ones and keep what their JVMs learnt.

``headrace up`` starts this in the background, at the lowest priority, when a cache is missing; ``headrace
down`` ends it. It works in a home of its own under the cache and touches no stack's data.
``HEADRACE_TRAINING=off`` turns it off.

Run as ``python -m headrace.local.training``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import psutil

from headrace.local import artefacts, launch
from headrace.local.aot import AotCache
from headrace.local.cache import cache_root
from headrace.local.connect import Connect
from headrace.local.credentials import USER, Credentials
from headrace.local.driver import driver_cache, train_driver
from headrace.local.elasticsearch import Elasticsearch
from headrace.local.home import Home
from headrace.local.kafka import Kafka
from headrace.local.ports import HOST, load_or_pick
from headrace.local.server import Server, Site
from headrace.observe import pidfile

__all__ = ["NAME", "main", "start_training"]

NAME = "training"
"""Name of the process, as its pid file and its log have it."""

_READY_SECONDS = 300.0
_DUMP_SECONDS = 300.0
_LEAST_MEMORY = 2 << 30
_LEAST_DISK = 2 << 30
_LOWEST_PRIORITY = 19


def start_training(home: Home) -> None:
    """Start training in the background, unless it is turned off or this machine has no room for it."""
    if os.environ.get("HEADRACE_TRAINING", "").lower() in ("off", "0", "no"):
        return
    if pidfile.alive(home.pidfile(NAME)) is not None:
        return
    if psutil.virtual_memory().available < _LEAST_MEMORY:
        return
    if shutil.disk_usage(cache_root()).free < _LEAST_DISK:
        return
    with home.log(NAME).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.local.training"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
    with contextlib.suppress(ProcessLookupError):
        pidfile.write(home.pidfile(NAME), process.pid)
    # It outlives us; this object would only warn at its collection.
    process.returncode = 0


def _site(home: Home) -> Site:
    home.create()
    groups = {group for server in (Kafka(), Connect(), Elasticsearch()) for group in server.groups} | {
        "spark"
    }
    files = artefacts.resolve(groups)
    return Site(
        home, load_or_pick(home.ports_file), files, Credentials.load_or_make(home.root), None, training=True
    )


def _exercise(site: Site) -> None:
    """Let Elasticsearch do what it will do: make an index, take documents by bulk, find them."""
    login = (USER, site.credentials.elasticsearch)
    url = f"http://{HOST}:{site.ports['elasticsearch']}"
    with httpx.Client(base_url=url, auth=login, timeout=60.0, trust_env=False) as client:
        mapping = {"properties": {"name": {"type": "keyword"}, "price": {"type": "double"}}}
        client.put("/training-1", json={"mappings": {"dynamic": "strict", **mapping}}).raise_for_status()
        client.post(
            "/_aliases", json={"actions": [{"add": {"index": "training-1", "alias": "training"}}]}
        ).raise_for_status()
        for version in range(1, 21):
            lines = []
            for number in range(100):
                action = f'{{"index":{{"_id":"{number}","version":{version},"version_type":"external"}}}}'
                lines += [action, f'{{"name":"n{number}","price":{number}.5}}']
            headers = {"content-type": "application/x-ndjson"}
            body = "\n".join(lines) + "\n"
            client.post("/training/_bulk", content=body, headers=headers).raise_for_status()
            client.get("/training/_doc/1").raise_for_status()
        client.post("/training/_refresh").raise_for_status()
        client.post("/training/_search", json={"query": {"term": {"name": "n1"}}}).raise_for_status()


def _train(servers: Sequence[Server], site: Site) -> None:
    """Start servers in this order, stop them in the other, and keep what each wrote while it stopped."""
    started: list[tuple[Server, AotCache | None]] = []
    try:
        for server in servers:
            plan = server.prepare(site)
            started.append((server, plan.aot))
            launch.start(server, plan, site.home)
            launch.wait_ready(server, site, timeout=_READY_SECONDS)
            if server.name == "elasticsearch":
                _exercise(site)
    finally:
        for server, cache in reversed(started):
            path = site.home.pidfile(server.name)
            # A JVM writes its cache after everything else has ended, and takes its time.
            pidfile.stop(path, grace=_DUMP_SECONDS, request=server.stop_signal)
            kept = cache is not None and cache.admit()
            sys.stdout.write(f"{server.name}: {'trained' if kept else 'no cache'}\n")
            sys.stdout.flush()


def main() -> None:
    """Train every Java server whose cache is missing, one process group at a time."""
    os.nice(_LOWEST_PRIORITY)
    with contextlib.suppress(AttributeError, OSError):
        # Linux: only what nobody else wants.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    root = cache_root() / "aot"
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.stdout.write("another process trains already\n")
            return
        # The lock is ours, so whatever lies here was left by a training that was ended.
        for left in [*root.glob("home-*"), *root.glob("*.new*")]:
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
        groups: tuple[tuple[Server, ...], ...] = ((Elasticsearch(),), (Kafka(), Connect()))
        for servers in groups:
            with _place(root) as site:
                plans = [server.prepare(site).aot for server in servers]
                if any(plan is not None and not plan.usable() for plan in plans):
                    _train(servers, site)
        with _place(root) as site:
            driver = driver_cache(site.files["spark"])
            if driver is not None and not driver.usable():
                _train_driver(replace(site, training=False))


@contextmanager
def _place(root: Path) -> Iterator[Site]:
    work = Path(tempfile.mkdtemp(prefix="home-", dir=root))
    try:
        yield _site(Home(work / "home"))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _train_driver(site: Site) -> None:
    kafka = Kafka()
    launch.start(kafka, kafka.prepare(site), site.home)
    try:
        launch.wait_ready(kafka, site, timeout=_READY_SECONDS)
        address = f"{HOST}:{site.ports['kafka']};{site.home.kafka_properties}"
        kept = train_driver(site.files["spark"], address, site.home.root.parent)
    finally:
        pidfile.stop(site.home.pidfile(kafka.name), request=kafka.stop_signal)
    sys.stdout.write(f"driver: {'trained' if kept else 'no cache'}\n")


if __name__ == "__main__":
    main()
