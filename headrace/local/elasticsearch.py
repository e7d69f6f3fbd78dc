"""Elasticsearch, from the distribution made for integration tests, hosted in a Python process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import httpx

from headrace.local.account import Account, check_reachable, private
from headrace.local.credentials import USER
from headrace.local.java import java_home, libjvm
from headrace.local.jvm import aot_cache, class_path, jvm_options, own_log, settings_file
from headrace.local.ports import HOST
from headrace.local.server import Launch, Site
from headrace.local.unpack import unpacked
from headrace.model.errors import StackError

__all__ = ["HEAP_MIB", "Elasticsearch", "extract", "node_options"]

_SETTINGS = """\
cluster.name: headrace
node.name: headrace
discovery.type: single-node
network.host: {host}
http.port: {port}
transport.port: {transport}
# No port for other nodes: whoever reached it could do everything without a password.
network.server: false
path.data: {data}
path.logs: {logs}
# The disk is the user's; a full one is told by `headrace up`, not by indices that turn read-only.
cluster.routing.allocation.disk.threshold_enabled: false
# The serial collector leaves garbage lying until the heap is full. A breaker that takes it for memory in use
# refuses bulk requests that would have fitted.
indices.breaker.total.use_real_memory: false
action.destructive_requires_name: true
"""

HEAP_MIB = 384


def extract(archive: Path, target: Path, modules: Sequence[str] = ("transport-netty4",)) -> None:
    """Unpack the libraries and some modules, which is all a node on one class path needs."""
    wanted = ("lib/", *(f"modules/{module}/" for module in modules))
    with ZipFile(archive) as content:
        for member in content.namelist():
            path = member.partition("/")[2]
            if member.endswith("/") or ".." in path.split("/") or "/tools/" in path:
                continue
            if path.startswith(wanted):
                file = target / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content.read(member))
    for descriptor in target.glob("modules/*/plugin-descriptor.properties"):
        lines = descriptor.read_text(encoding="utf-8").splitlines()
        # On the class path there is no module layer, so a module must not name itself as one.
        kept = [line for line in lines if not line.startswith("modulename=")]
        descriptor.write_text("\n".join(kept) + "\n", encoding="utf-8")


def node_options(distribution: Path, config: Path, temp: Path, account: Account | None) -> list[str]:
    """Return the options of the Java that a node runs in, whose process is ours."""
    return [
        *jvm_options(HEAP_MIB, temp, account),
        f"-Des.path.home={distribution}",
        f"-Des.path.conf={config}",
        "-Des.distribution.type=zip",
        "-Dlog4j2.disable.jmx=true",
        "-Dlog4j.shutdownHookEnabled=false",
        "-Dio.netty.noUnsafe=true",
        "--enable-native-access=ALL-UNNAMED",
        # Signals are the hosting process' business.
        "-Xrs",
    ]


@dataclass(frozen=True, slots=True)
class Elasticsearch:
    """The search server."""

    name: str = "elasticsearch"
    version: str = "9.5.3"
    groups: tuple[str, ...] = ("elasticsearch",)
    ports: tuple[str, ...] = ("elasticsearch", "elasticsearch_transport")
    logs_itself: bool = True
    stop_signal: signal.Signals = signal.SIGTERM

    def prepare(self, site: Site) -> Launch:
        distribution = unpacked(site.files["elasticsearch"][0], extract)
        config = site.home.config(self.name)
        data = private(site.home.data(self.name), site.account)
        log = own_log(site.home, self.name, site.account)
        if site.account is not None:
            check_reachable(site.account, data, "HEADRACE_HOME")
            check_reachable(site.account, distribution, "HEADRACE_CACHE")
        text = _SETTINGS.format(
            host=HOST,
            port=site.ports["elasticsearch"],
            transport=site.ports["elasticsearch_transport"],
            data=data,
            logs=log.parent,
        )
        settings_file(config / "elasticsearch.yml", text, site.account)
        settings_file(config / "log4j2.properties", _LOGGING, site.account)
        settings_file(config / "login", f"{USER}:{site.credentials.elasticsearch}", site.account)
        options = node_options(distribution, config, site.home.data("elasticsearch-tmp"), site.account)
        jars = sorted((distribution / "lib").glob("*.jar"))
        aot = aot_cache(self.name, HEAP_MIB, jars)
        options += aot.options(training=site.training) if aot else []
        host = [sys.executable, "-m", "headrace.local.elasticsearch_host"]
        command = [
            *host,
            str(libjvm(java_home())),
            class_path(jars),
            str(distribution),
            str(config),
            *options,
        ]
        # The host must be found whether headrace is installed or run from a clone, from any directory.
        env = {"PYTHONPATH": str(Path(__file__).parents[2])}
        if site.account is not None:
            # Its Python may lie where that account cannot look, so it becomes that account by itself.
            env["HEADRACE_ACCOUNT"] = f"{site.account.uid}:{site.account.gid}"
        return Launch(command, env=env, aot=aot)

    def probe(self, site: Site) -> None:
        url = f"http://{HOST}:{site.ports['elasticsearch']}/_cluster/health"
        answer = httpx.get(url, timeout=3.0, auth=(USER, site.credentials.elasticsearch), trust_env=False)
        answer.raise_for_status()
        if answer.json()["status"] == "red":
            raise StackError("Elasticsearch's cluster is red.", code="STACK_NOT_READY")


_LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:es.logs.base_path}${sys:file.separator}elasticsearch.log
appender.file.filePattern = ${sys:es.logs.base_path}${sys:file.separator}elasticsearch.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %-5p %c{1} %m%n
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""
