"""Kafka: one broker that is its own controller (KRaft)."""

from __future__ import annotations

import signal
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from headrace.local.cache import write_atomically
from headrace.local.jvm import aot_cache, java_command, jvm_options, log4j2_properties
from headrace.local.ports import HOST
from headrace.local.server import Launch, Site
from headrace.model.errors import StackError

__all__ = ["Kafka", "new_cluster_id", "probe_broker"]

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
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


def probe_broker(port: int) -> None:
    """Return if a broker answers a metadata request; raise else."""
    # librdkafka tries again by itself for longer than we want to know about.
    with socket.create_connection((HOST, port), timeout=1.0):
        pass
    client = AdminClient(
        {"bootstrap.servers": f"{HOST}:{port}", "log_level": 0, "socket.timeout.ms": 3000}, logger=None
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
        data = site.home.data(self.name)
        settings = config / "server.properties"
        logging = config / "log4j2.properties"
        text = _SETTINGS.format(
            host=HOST, port=site.ports["kafka"], controller=site.ports["kafka_controller"], data=data
        )
        write_atomically(settings, text.encode())
        write_atomically(logging, log4j2_properties(site.home.log(self.name)).encode())
        options = jvm_options(HEAP_MIB, data.parent / "kafka-tmp")
        jars = site.files["kafka"]
        if not (data / "meta.properties").is_file():
            self._format(jars, options, settings)
        aot = aot_cache(self.name, HEAP_MIB, jars)
        options += [f"-Dlog4j2.configurationFile={logging}"]
        options += aot.options(training=site.training) if aot else []
        return Launch(java_command(jars, options, "kafka.Kafka", str(settings)), aot=aot)

    def _format(self, jars: Sequence[Path], options: list[str], settings: Path) -> None:
        """Give the empty data directory a cluster id, once in its life."""
        command = java_command(
            jars,
            [*options, "-Dlog4j2.level=ERROR"],
            "kafka.tools.StorageTool",
            *("format", "--ignore-formatted", "-t", new_cluster_id(), "-c", str(settings)),
        )
        answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if answer.returncode != 0:
            words = (answer.stderr or answer.stdout).strip()[-500:]
            raise StackError(
                f"Kafka's data directory cannot be formatted: {words}",
                code="STACK_SERVER_DIED",
                hint="Look at the free space and the permissions of the home.",
            )

    def probe(self, site: Site) -> None:
        probe_broker(site.ports["kafka"])
