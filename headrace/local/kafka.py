"""Kafka: one broker that is its own controller (KRaft)."""

from __future__ import annotations

import signal
import socket
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from headrace.local.account import Account, check_reachable, private, run_as
from headrace.local.cache import write_atomically
from headrace.local.credentials import USER
from headrace.local.jvm import (
    aot_cache,
    java_command,
    jvm_options,
    log4j2_properties,
    own_log,
    settings_file,
)
from headrace.local.kafka_fence import controller_settings, fence, was_killed
from headrace.local.ports import HOST
from headrace.local.server import Launch, Site
from headrace.model.errors import StackError

__all__ = ["Kafka", "client_properties", "new_cluster_id", "probe_broker"]

_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=CLIENTS://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=CLIENTS://{host}:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=CLIENTS
listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
listener.name.clients.plain.sasl.jaas.config={login}
listener.name.controller.plain.sasl.jaas.config={login}
log.dirs={data}

# One broker: every internal topic has one replica, and few partitions to open at a start.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0

# A topic that nobody made is a mistake in a name.
auto.create.topics.enable=false
num.partitions=1

# A broker that was killed comes back once its old session has expired.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
group.min.session.timeout.ms=2000
controller.quorum.election.timeout.ms=200
controller.quorum.fetch.timeout.ms=1000

# A laptop's share of memory, threads and disk.
num.network.threads=2
num.io.threads=4
background.threads=2
num.recovery.threads.per.data.dir=2
log.segment.bytes=134217728
log.cleaner.dedupe.buffer.size=16777216
log.cleaner.io.buffer.size=131072
"""

HEAP_MIB = 384


def login(password: str, *, serves: bool = False) -> str:
    """Return the JAAS line by which one is the broker's user; with ``serves`` also knows that user."""
    known = f' user_{USER}="{password}"' if serves else ""
    return f'{_MODULE} required username="{USER}" password="{password}"{known};'


def client_properties(password: str) -> dict[str, str]:
    """Return the Java properties by which a client reaches the broker."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login(password),
    }


def write_client_properties(site: Site) -> None:
    """Write what clients need into a file that only we may read; addresses name it."""
    text = "".join(f"{name}={value}\n" for name, value in client_properties(site.credentials.kafka).items())
    write_atomically(site.home.kafka_properties, text.encode(), mode=0o600)


def probe_broker(port: int, password: str) -> None:
    """Return if a broker answers a metadata request; raise else."""
    # librdkafka tries again by itself for longer than we want to know about.
    with socket.create_connection((HOST, port), timeout=1.0):
        pass
    client = AdminClient(
        {
            "bootstrap.servers": f"{HOST}:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": password,
            "log_level": 0,
            "socket.timeout.ms": 3000,
        },
        logger=None,
    )
    if not client.list_topics(timeout=3.0).brokers:
        raise StackError("Kafka lists no broker.", code="STACK_NOT_READY")


def new_cluster_id() -> str:
    """Return a random id for a cluster, in 22 letters as Kafka spells ids.

    None begins with a dash, which Kafka's tools would take for an option; Kafka makes up none such either.
    """
    while (found := urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")).startswith("-"):
        pass
    return found


@dataclass(frozen=True, slots=True)
class Kafka:
    """The broker."""

    name: str = "kafka"
    version: str = "4.3.1"
    groups: tuple[str, ...] = ("kafka",)
    ports: tuple[str, ...] = ("kafka", "kafka_controller")
    logs_itself: bool = True
    stop_signal: signal.Signals = signal.SIGTERM

    def prepare(self, site: Site) -> Launch:
        config = site.home.config(self.name)
        data = private(site.home.data(self.name), site.account)
        text = _SETTINGS.format(
            host=HOST,
            port=site.ports["kafka"],
            controller=site.ports["kafka_controller"],
            data=data,
            login=login(site.credentials.kafka, serves=True),
        )
        settings = settings_file(config / "server.properties", text, site.account)
        write_client_properties(site)
        log = own_log(site.home, self.name, site.account)
        logging = settings_file(config / "log4j2.properties", log4j2_properties(log), site.account)
        options = jvm_options(HEAP_MIB, data.parent / "kafka-tmp", site.account)
        jars = site.files["kafka"]
        if site.account is not None:
            check_reachable(site.account, data, "HEADRACE_HOME")
            check_reachable(site.account, jars[0].parent, "HEADRACE_CACHE")
        if not (data / "meta.properties").is_file():
            self._format(jars, options, settings, site.account)
        if was_killed(data):
            self._fence(site, options, text)
        aot = aot_cache(self.name, HEAP_MIB, jars)
        options += [f"-Dlog4j2.configurationFile={logging}"]
        options += aot.options(training=site.training) if aot else []
        return Launch(
            java_command(jars, options, "kafka.Kafka", str(settings)), account=site.account, aot=aot
        )

    def _fence(self, site: Site, options: Sequence[str], text: str) -> None:
        """Let the session of a broker that was killed expire, before there is another."""
        config = site.home.config(self.name)
        log = own_log(site.home, "kafka-fence", site.account)
        logging = settings_file(config / "fence-log4j2.properties", log4j2_properties(log), site.account)
        settings = settings_file(config / "fence.properties", controller_settings(text), site.account)
        given = [*options, f"-Dlog4j2.configurationFile={logging}"]
        command = java_command(site.files["kafka"], given, "kafka.Kafka", str(settings))
        fence(self, Launch(command, account=site.account), site.home, log)

    def _format(
        self, jars: Sequence[Path], options: list[str], settings: Path, account: Account | None
    ) -> None:
        """Give the empty data directory a cluster id, once in its life."""
        command = java_command(
            jars,
            [*options, "-Dlog4j2.level=ERROR"],
            "kafka.tools.StorageTool",
            *("format", "--ignore-formatted", "-t", new_cluster_id(), "-c", str(settings)),
        )
        answer = run_as(account, command)
        if answer.returncode != 0:
            words = (answer.stderr or answer.stdout).strip()[-500:]
            raise StackError(
                f"Kafka's data directory cannot be formatted: {words}",
                code="STACK_SERVER_DIED",
                hint="Look at the free space and the permissions of the home.",
            )

    def probe(self, site: Site) -> None:
        probe_broker(site.ports["kafka"], site.credentials.kafka)
