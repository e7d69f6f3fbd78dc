"""``python -m tests.support.spark_split DIRECTORY``: split records as the engine's queries do, and keep that.

Reads ``sent.arrow`` and ``tables.json`` of the directory and writes ``split.arrow``, in the same order.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow as pa

from headrace.config.pipeline import EngineSpec, TableSpec
from headrace.local.artefacts import resolve
from headrace.local.java import spark_java_home
from spark_jobs.decode import envelopes
from spark_jobs.session import start


def main(room: Path) -> None:
    """Split them."""
    engine = EngineSpec(
        pipelines=room,
        progress=room,
        requests=room,
        run=room,
        logs=room,
        work=room / "spark",
        java_home=spark_java_home(),
        jars=tuple(resolve(["spark"])["spark"]),
    )
    session = start(engine)
    tables = [TableSpec.model_validate(told) for told in json.loads((room / "tables.json").read_text())]
    sent = session.createDataFrame(pa.ipc.open_file(room / "sent.arrow").read_all()).coalesce(1)
    split = envelopes(sent, tables).toArrow()
    with pa.ipc.new_file(room / "split.arrow", split.schema) as writer:
        writer.write_table(split)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
