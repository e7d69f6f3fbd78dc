"""Debezium Server into Redis streams, as its documentation says to run it: one process, no Kafka."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg

from headrace.local.java import java_home
from headrace.local.lockfile import Artefact, Coordinate
from headrace.local.ports import HOST, is_free
from headrace.local.unpack import safe_extract_tar
from tests.bench.peers.distribution import distribution

__all__ = ["NAME", "PACKAGE", "VERSION", "Serving", "debezium_server"]

NAME = "debezium_server"
PACKAGE = "Debezium Server"
VERSION = "3.6.0.Final"
_TAR = Artefact(
    "bench",
    Coordinate.parse(f"io.debezium:debezium-server-dist:{VERSION}:tar.gz"),
    "901ce7b0b75b4dafaac4aa57dac6dfcad5937f96fb7159e25d22759bbf5192e4",
    781_516_320,
)
_HEAP_MIB = 512
_BOOT_S = 120.0
_SLOT = "peer_debezium"


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that reads the log.

    Args:
        pid: Its process.
        stream: The Redis stream of the table's changes.
    """

    pid: int
    stream: str


def _extract(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as content:
        safe_extract_tar(content, target)


@contextmanager
def debezium_server(dsn: str, table: str, redis_url: str) -> Iterator[Serving]:
    """Yield a server that streams what changes in a table from now on; then end it and remove what it made.

    Raises:
        RuntimeError: It cannot be had or does not start, with its last words.
    """
    home = distribution(_TAR, _extract) / "debezium-server"
    work = Path(tempfile.mkdtemp(prefix="headrace-debezium-"))
    (work / "application.properties").write_text(_settings(dsn, table, redis_url, work))
    command = [
        str(java_home() / "bin" / "java"),
        f"-Xmx{_HEAP_MIB}m",
        f"-Djava.io.tmpdir={work}",
        f"-Dquarkus.config.locations={work / 'application.properties'}",
        "-cp",
        f"{home}/debezium-server-dist-{VERSION}-runner.jar:{home}/lib/*",
        "io.debezium.server.Main",
    ]
    try:
        with (work / "out.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=work)
        try:
            _wait(process, dsn, work / "out.log")
            yield Serving(process.pid, f"peer.public.{table}")
        finally:
            process.kill()
            process.wait()
            _forget(dsn)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _settings(dsn: str, table: str, redis_url: str, work: Path) -> str:
    database, redis = urlsplit(dsn), urlsplit(redis_url)
    port = next(port for port in range(28_100, 29_100) if is_free(port))
    source = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage.file.filename": work / "offsets.dat",
        "offset.flush.interval.ms": 0,
        "database.hostname": database.hostname,
        "database.port": database.port,
        "database.user": unquote(database.username or ""),
        "database.password": unquote(database.password or ""),
        "database.dbname": database.path.lstrip("/"),
        "topic.prefix": "peer",
        "table.include.list": f"public.{table}",
        "plugin.name": "pgoutput",
        "slot.name": _SLOT,
        "publication.name": _SLOT,
        "publication.autocreate.mode": "filtered",
        "snapshot.mode": "no_data",
        "decimal.handling.mode": "string",
    }
    sink = {
        "type": "redis",
        "redis.address": f"{redis.hostname}:{redis.port}",
        "redis.user": redis.username or "default",
        "redis.password": redis.password or "",
        "redis.db.index": redis.path.lstrip("/") or 0,
    }
    lines = {
        **{f"debezium.sink.{name}": value for name, value in sink.items()},
        **{f"debezium.source.{name}": value for name, value in source.items()},
        "debezium.format.value.schemas.enable": "false",
        "debezium.format.key.schemas.enable": "false",
        "quarkus.http.host": HOST,
        "quarkus.http.port": port,
        "quarkus.log.level": "WARN",
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _wait(process: subprocess.Popen[bytes], dsn: str, log: Path) -> None:
    """Return when it reads its slot."""
    deadline = time.monotonic() + _BOOT_S
    with psycopg.connect(dsn, autocommit=True) as connection:
        while time.monotonic() < deadline and process.poll() is None:
            asked = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
            found = connection.execute(asked, (_SLOT,)).fetchone()
            if found is not None and found[0]:
                return
            time.sleep(0.1)
    words = log.read_text(errors="replace").strip()[-800:]
    raise RuntimeError(f"{PACKAGE} {VERSION} does not read the log; its last words: {words}")


def _forget(dsn: str) -> None:
    """Drop its slot, which Postgres lets go of a little after the process has died."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(50):
            asked = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
            found = connection.execute(asked, (_SLOT,)).fetchone()
            if found is None:
                return
            if not found[0]:
                connection.execute("SELECT pg_drop_replication_slot(%s)", (_SLOT,))
                return
            time.sleep(0.1)
