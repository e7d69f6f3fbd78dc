"""A Postgres and its standby, whose slots are kept in step, and the failover from the one to the other."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from headrace.local.account import unprivileged
from tests.support.own_servers import free_port, shown
from tests.support.patience import WAIT_S
from tests.support.servers import answers, binaries_of
from tests.support.waiting import until

__all__ = ["Pair", "pair"]

_MAJOR = 18
_SLOT = "standby"


@dataclass
class _Server:
    """One server: a data directory, started and stopped on whatever port."""

    base: Path
    data: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def log(self) -> Path:
        return self.base / f"{self.data.name}.log"

    def start(self, *settings: str) -> None:
        command = [str(binaries_of(_MAJOR) / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        known = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "wal_level=logical", "fsync=off"]
        for setting in (*known, *settings):
            command += ["-c", setting]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **_owner())
        until(lambda: answers(self.dsn))

    def stop(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(WAIT_S)
            self.process = None

    def value(self, statement: str) -> Any:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None


@dataclass
class Pair:
    """A primary and its standby.

    Attributes:
        primary: Serves at the address that applications know.
        standby: Follows it.
    """

    primary: _Server
    standby: _Server

    @property
    def dsn(self) -> str:
        """The address that applications know; it leads to the standby once that has taken over."""
        return self.primary.dsn

    def keeps(self, slot: str) -> bool:
        """Return whether the standby has a slot that it can go on with."""
        ready = "SELECT synced AND NOT temporary AND invalidation_reason IS NULL FROM pg_replication_slots"
        return bool(self.standby.value(f"{ready} WHERE slot_name = '{slot}'"))

    def fail_over(self) -> None:
        """Kill the primary and let the standby take its place, and its address."""
        self.primary.stop(signal.SIGKILL)
        self.standby.value("SELECT pg_promote()")
        until(lambda: self.standby.value("SELECT pg_is_in_recovery()") is False)
        self.standby.stop(signal.SIGINT)
        self.standby.port = self.primary.port
        self.standby.start()


def _owner() -> dict[str, Any]:
    account = unprivileged()
    return {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}


@contextmanager
def pair() -> Iterator[Pair]:
    """Yield a primary and a standby that follows it; what is delivered to anybody the standby has, too."""
    folder = os.environ.get("HEADRACE_TEST_DIR", "/var/tmp")
    base = Path(tempfile.mkdtemp(prefix="headrace-test-", dir=folder))
    account = unprivileged()
    if account is not None:
        os.chown(base, account.uid, account.gid)
    primary = _Server(base, base / "primary", free_port())
    standby = _Server(base, base / "standby", free_port())
    try:
        made = [str(binaries_of(_MAJOR) / "initdb"), "-D", str(primary.data), "-U", "postgres", "-A", "trust"]
        made += ["-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, cwd="/", **_owner())
        primary.start()
        primary.value(f"SELECT pg_create_physical_replication_slot('{_SLOT}', true)")
        primary.stop(signal.SIGINT)
        subprocess.run(["cp", "-a", str(primary.data), str(standby.data)], check=True, **_owner())
        mark = standby.data / "standby.signal"
        mark.touch()
        if account is not None:
            os.chown(mark, account.uid, account.gid)
        shutil.rmtree(standby.data / "pg_replslot" / _SLOT)
        primary.start(f"synchronized_standby_slots={_SLOT}")
        standby.start(
            f"primary_conninfo=host=127.0.0.1 port={primary.port} user=postgres dbname=postgres",
            f"primary_slot_name={_SLOT}",
            "hot_standby_feedback=on",
            "sync_replication_slots=on",
        )
        with shown(primary.log), shown(standby.log):
            yield Pair(primary, standby)
    finally:
        for server in (standby, primary):
            server.stop(signal.SIGQUIT)
        shutil.rmtree(base, ignore_errors=True)
