"""A real Elasticsearch whose own security is on, its administrator, and a user whose rights a test gives.

Users and roles are told by files: the index that would hold others needs modules that the archive has not.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from headrace.local.account import unprivileged
from headrace.local.artefacts import resolve
from headrace.local.elasticsearch import extract, node_options
from headrace.local.java import java_home, libjvm
from headrace.local.jvm import class_path
from headrace.local.ports import HOST
from tests.support.own_servers import free_port, shown
from tests.support.patience import WAIT_S
from tests.support.waiting import ended, until

__all__ = ["CONSOLE_LOGGING", "Guarded", "guarded_search"]

_ADMIN, _PASSWORD = "admin", "of-the-admin"
_USER, _SECRET = "writer", "of-the-writer"
_MODULES = ("transport-netty4", "x-pack-core", "x-pack-security")
_SETTINGS = """\
discovery.type: single-node
network.host: {host}
http.port: {port}
transport.port: {transport}
path.data: {work}/data
path.logs: {work}/logs
cluster.routing.allocation.disk.threshold_enabled: false
indices.breaker.total.use_real_memory: false
xpack.security.enabled: true
xpack.security.autoconfiguration.enabled: false
resource.reload.interval.high: 200ms
"""
CONSOLE_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
_HOST = """
import sys
from headrace.local import elasticsearch_host as host
host._close_doors = lambda *_: None  # its own security stands there
host.main(sys.argv[1:])
"""


class Guarded:
    """The server, spoken to as its administrator.

    Args:
        url: Its address, without user or password.
        roles: The file in which it looks for roles.
    """

    def __init__(self, url: str, roles: Path) -> None:
        self.url = url
        self.user = {"username": _USER, "password": _SECRET}
        self._roles, self._given = roles, 0
        self._http = httpx.Client(base_url=url, auth=(_ADMIN, _PASSWORD), timeout=WAIT_S)

    def ask(self, method: str, target: str, body: Any = None) -> Any:
        """Return the answer to a request, which has to succeed."""
        answer = self._http.request(method, target, json=body)
        answer.raise_for_status()
        return answer.json()

    def give(self, role: Mapping[str, Any]) -> None:
        """Let the user do what a role says, as soon as this returns, and nothing else."""
        self._given += 1
        mark = [f"nobody-{self._given}"]
        other = self._roles.with_suffix(".new")
        other.write_text(json.dumps({"headrace": {**role, "run_as": mark}}))
        other.replace(self._roles)
        url = f"{self.url}/_security/user/_privileges"
        until(lambda: httpx.get(url, auth=(_USER, _SECRET)).json().get("run_as") == mark)

    def answers(self) -> bool:
        """Return whether it does."""
        try:
            return self._http.get("/_cluster/health").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False


def _hashed(password: str) -> str:
    """Return a password as the server's file of users has it."""
    salt, times = os.urandom(32), 10_000
    made = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, times, 32)
    return f"{{PBKDF2}}{times}${b64encode(salt).decode()}${b64encode(made).decode()}"


@contextmanager
def guarded_search() -> Iterator[Guarded]:
    """Yield a server of its own, whose user may do nothing at first."""
    (archive,) = resolve(("elasticsearch",))["elasticsearch"]
    account = unprivileged()
    work = Path(
        tempfile.mkdtemp(prefix="headrace-test-", dir=os.environ.get("HEADRACE_TEST_DIR", "/var/tmp"))
    )
    distribution = work / "distribution"
    port = free_port(100)
    try:
        for name in ("config", "data", "logs", "distribution"):
            (work / name).mkdir()
        extract(archive, distribution, _MODULES)
        for name, text in {
            "elasticsearch.yml": _SETTINGS.format(host=HOST, port=port, transport=port + 100, work=work),
            "log4j2.properties": CONSOLE_LOGGING,
            "users": f"{_ADMIN}:{_hashed(_PASSWORD)}\n{_USER}:{_hashed(_SECRET)}\n",
            "users_roles": f"superuser:{_ADMIN}\nheadrace:{_USER}\n",
            "roles.yml": "",
        }.items():
            (work / "config" / name).write_text(text)
        options = node_options(distribution, work / "config", work / "tmp", account)
        if account is not None:
            for path in (work, *work.rglob("*")):
                os.chown(path, account.uid, account.gid)
        jars = class_path(sorted((distribution / "lib").glob("*.jar")))
        command = [sys.executable, "-c", _HOST, str(libjvm(java_home())), jars, str(distribution)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        if account is not None:
            environment["HEADRACE_ACCOUNT"] = f"{account.uid}:{account.gid}"
        with (work / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, str(work / "config"), *options], stdout=log, stderr=log, cwd="/", env=environment
            )
        try:
            server = Guarded(f"http://{HOST}:{port}", work / "config" / "roles.yml")
            until(
                lambda: process.poll() is not None or server.answers(),
                why=lambda: (work / "log").read_text(errors="replace")[-2000:],
            )
            assert process.poll() is None, (work / "log").read_text(errors="replace")[-2000:]
            with shown(work / "log"):
                yield server
        finally:
            process.kill()
            ended(process)
    finally:
        shutil.rmtree(work, ignore_errors=True)
