"""Kafka Connect, distributed mode with one worker, and the Debezium Postgres connector as its plugin."""

from __future__ import annotations

import signal
import tarfile
from dataclasses import dataclass
from pathlib import Path

import httpx

from headrace.local.account import private
from headrace.local.converter import converter_jar
from headrace.local.credentials import USER
from headrace.local.jvm import (
    aot_cache,
    java_command,
    jvm_options,
    log4j2_properties,
    own_log,
    settings_file,
)
from headrace.local.kafka import client_properties
from headrace.local.ports import HOST
from headrace.local.server import Launch, Site
from headrace.local.unpack import safe_extract_tar, unpacked

__all__ = ["Connect"]

_SETTINGS = """\
bootstrap.servers={host}:{kafka}
group.id=headrace-connect
listeners=http://{host}:{port}
rest.extension.classes=org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension
rest.advertised.host.name={host}
rest.advertised.port={port}
plugin.path={plugins}
plugin.discovery=service_load

config.storage.topic=headrace-connect-config
config.storage.replication.factor=1
offset.storage.topic=headrace-connect-offsets
offset.storage.replication.factor=1
offset.storage.partitions=1
status.storage.topic=headrace-connect-status
status.storage.replication.factor=1
status.storage.partitions=1

# Records and the offsets of where they came from are written in one transaction: a worker that is killed
# neither loses nor repeats a change.
exactly.once.source.support=enabled
offset.flush.interval.ms=1000

key.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=false
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false

# Passwords stay in files that only their owner reads; connector configurations hold references to them.
config.providers=file
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
config.providers.file.param.allowed.paths={secrets}

# One worker: nobody to wait for, and a worker that was killed is replaced soon.
scheduled.rebalance.max.delay.ms=0
session.timeout.ms=6000
heartbeat.interval.ms=1500
task.shutdown.graceful.timeout.ms=3000
"""

_JAAS = """\
KafkaConnect {{
  org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule required file="{users}";
}};
"""

HEAP_MIB = 384


def _extract(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as content:
        safe_extract_tar(content, target)


@dataclass(frozen=True, slots=True)
class Connect:
    """The worker."""

    name: str = "connect"
    version: str = "4.3.1 (Debezium 3.7.0.Final)"
    groups: tuple[str, ...] = ("kafka", "connect", "debezium")
    ports: tuple[str, ...] = ("connect",)
    logs_itself: bool = True
    stop_signal: signal.Signals = signal.SIGTERM

    def prepare(self, site: Site) -> Launch:
        config = site.home.config(self.name)
        private(site.home.secrets, site.account)
        plugins = unpacked(site.files["debezium"][0], _extract)
        text = _SETTINGS.format(
            host=HOST,
            port=site.ports["connect"],
            kafka=site.ports["kafka"],
            plugins=plugins,
            secrets=site.home.secrets,
        )
        text += "".join(
            f"{prefix}{name}={value}\n"
            for prefix in ("", "producer.", "consumer.", "admin.")
            for name, value in client_properties(site.credentials.kafka).items()
        )
        settings = settings_file(config / "worker.properties", text, site.account)
        users = settings_file(config / "users", f"{USER}={site.credentials.connect}\n", site.account)
        jaas = settings_file(config / "jaas.conf", _JAAS.format(users=users), site.account)
        log = own_log(site.home, self.name, site.account)
        logging = settings_file(config / "log4j2.properties", log4j2_properties(log), site.account)
        options = jvm_options(HEAP_MIB, site.home.data("connect-tmp"), site.account)
        jars = [*site.files["kafka"], *site.files["connect"]]
        jars.append(converter_jar(jars))
        aot = aot_cache(self.name, HEAP_MIB, jars)
        options += [f"-Dlog4j2.configurationFile={logging}", f"-Djava.security.auth.login.config={jaas}"]
        # Arrays of timestamps pass through the worker's own zone, which may skip or repeat an hour.
        options.append("-Duser.timezone=UTC")
        options += aot.options(training=site.training) if aot else []
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        return Launch(java_command(jars, options, main, str(settings)), account=site.account, aot=aot)

    def probe(self, site: Site) -> None:
        # The list of connectors is only answered once the worker has read its configuration topic.
        url = f"http://{HOST}:{site.ports['connect']}/connectors"
        httpx.get(url, timeout=3.0, auth=(USER, site.credentials.connect), trust_env=False).raise_for_status()
