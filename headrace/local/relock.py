"""For maintainers: write ``artefacts.lock`` anew, ``python -m headrace.local.relock``.

Change the versions below, run it with a network, look at the difference, run the tests. Whoever uses headrace
never resolves anything: they get exactly the files whose hashes stand in the lock.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from headrace.local.cache import Cache, cache_root, sha256_of
from headrace.local.ivy import Ivy
from headrace.local.lockfile import ANY_PLATFORM, LOCK_PATH, Artefact, Coordinate, dump
from headrace.local.mirrors import find_mirror

KAFKA = "4.3.1"
LOG4J = "2.25.4"
POSTGRES = "18.1.0"

BROKER_ROOTS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA}",
    f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J}",
    f"org.apache.logging.log4j:log4j-core:{LOG4J}",
)
CONNECT_ROOTS = (
    f"org.apache.kafka:connect-runtime:{KAFKA}",
    f"org.apache.kafka:connect-basic-auth-extension:{KAFKA}",
    f"org.apache.kafka:connect-json:{KAFKA}",
    f"org.apache.kafka:connect-transforms:{KAFKA}",
)
EXPLICIT = {
    "debezium": ("io.debezium:debezium-connector-postgres:3.7.0.Final:tar.gz:plugin",),
    "elasticsearch": ("org.elasticsearch.distribution.integ-test-zip:elasticsearch:9.5.3:zip",),
    "spark": (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        # No later one can be had from the registry; read from a live broker with the 4.2.0 source.
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.12.1",
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "io.delta:delta-storage:4.4.0",
        "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0",
    ),
}
PLATFORMS = ("linux-amd64", "linux-arm64v8", "darwin-amd64", "darwin-arm64v8")


def _closure(roots: Iterable[str]) -> dict[Coordinate, Path]:
    """Resolve everything ``roots`` need at run time, as coordinates and downloaded files."""
    work = Path(tempfile.mkdtemp(prefix="headrace-relock-"))
    ivy = Ivy(work, find_mirror(), poms=True)
    target = ivy.retrieve([Coordinate.parse(root) for root in roots], transitive=True, on_line=print)
    found = {}
    for file in sorted(target.rglob("*.jar")):
        # Ivy's report is the only place that keeps name and version apart.
        organisation = file.parent.name
        report = next(iter((work / "cache").glob(f"{organisation}/*/*/{file.name}")), None)
        if report is None:
            raise SystemExit(f"{file.name} is not in Ivy's cache under {organisation}")
        name = report.parent.parent.name
        found[Coordinate(organisation, name, file.stem[len(name) + 1 :])] = file
    return found


def _explicit(items: Iterable[str]) -> dict[Coordinate, Path]:
    coordinates = [Coordinate.parse(item) for item in items]
    work = Path(tempfile.mkdtemp(prefix="headrace-relock-"))
    target = Ivy(work, find_mirror()).retrieve(coordinates, on_line=print)
    return {item: target / item.organisation / item.filename for item in coordinates}


def main() -> None:
    """Resolve, download, hash and write the lock; what was downloaded fills this user's cache too."""
    cache = Cache(cache_root())
    artefacts: list[Artefact] = []

    def add(group: str, files: dict[Coordinate, Path], platform: str = ANY_PLATFORM) -> None:
        for coordinate, file in files.items():
            artefact = Artefact(group, coordinate, sha256_of(file), file.stat().st_size, platform)
            artefacts.append(artefact)
            if not cache.has(artefact) and not cache.admit(artefact, file):
                raise SystemExit(f"{file} changed while it was read")

    for group, items in EXPLICIT.items():
        add(group, _explicit(items))
    for platform in PLATFORMS:
        name = f"io.zonky.test.postgres:embedded-postgres-binaries-{platform}:{POSTGRES}"
        add("postgres", _explicit([name]), platform)
    # Broker and Connect share one class path, so their versions are settled together.
    broker = {(c.organisation, c.name) for c in _closure(BROKER_ROOTS)}
    both = _closure([*BROKER_ROOTS, *CONNECT_ROOTS])
    add("kafka", {c: f for c, f in both.items() if (c.organisation, c.name) in broker})
    add("connect", {c: f for c, f in both.items() if (c.organisation, c.name) not in broker})
    dump(artefacts)
    sys.stdout.write(f"{LOCK_PATH}: {len(artefacts)} artefacts\n")


if __name__ == "__main__":
    main()
