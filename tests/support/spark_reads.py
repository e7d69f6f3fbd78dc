"""``python -m tests.support.spark_reads DIRECTORY BOOTSTRAP TOPIC BEGIN END BYTES``: what Spark reads there.

It prints one JSON list per piece: offset, key and value of each record, the latter two in hexadecimal.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from headrace.config.pipeline import EngineSpec
from headrace.local.artefacts import resolve
from headrace.local.java import spark_java_home
from spark_jobs.by_spark import parts_by_size, raw_of, records_of
from spark_jobs.session import start


def main(room: Path, bootstrap: str, topic: str, begin: int, end: int, most_bytes: int) -> None:
    """Read and print it."""
    session = start(
        EngineSpec(
            pipelines=room,
            progress=room,
            requests=room,
            run=room,
            logs=room,
            work=room / "spark",
            java_home=spark_java_home(),
            jars=tuple(resolve(["spark"])["spark"]),
        )
    )
    for piece in parts_by_size(session, bootstrap, {(topic, 0): (begin, end)}, most_bytes):
        found = raw_of(records_of(session, bootstrap, piece))
        line = [(raw.offset, (raw.key or b"").hex(), (raw.value or b"").hex()) for raw in found]
        print(json.dumps(line), flush=True)
    os._exit(0)


if __name__ == "__main__":
    room, bootstrap, topic, *numbers = sys.argv[1:]
    begin, end, most = map(int, numbers)
    main(Path(room), bootstrap, topic, begin, end, most)
