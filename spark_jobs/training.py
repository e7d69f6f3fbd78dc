"""Run the engine's work once for its own sake, so that its JVM can keep what it learnt.

Run as ``python -m spark_jobs.training ENGINE PIPELINE RECORDS``: the two specs' files and how many records
the pipeline's topics will bring. Ends when they are applied, or after a minute.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path

from pyspark import SparkContext

from headrace.config.pipeline import EngineSpec, load_pipeline
from spark_jobs.apply import sink_of
from spark_jobs.batch import Batches
from spark_jobs.ownership import Holding
from spark_jobs.progress import Progress
from spark_jobs.session import start, warm_up
from spark_jobs.stream import start_query

__all__ = ["main"]

_PATIENCE_S = 60.0
_DUMP_S = 300.0


def main(engine_path: str, pipeline_path: str, records: int) -> int:
    """Apply ``records`` changes, then let the JVM end by itself: it writes its cache while it ends.

    Return 0 when all were applied.
    """
    engine = EngineSpec.model_validate_json(Path(engine_path).read_bytes())
    pipeline = load_pipeline(Path(pipeline_path))
    session = start(engine)
    gateway = SparkContext._gateway
    warm_up(session)
    progress = Progress(engine.progress / f"{pipeline.sink}.json", pipeline)
    sink, tables = sink_of(pipeline.model_dump_json())
    for schema in tables.schemas.values():
        sink.prepare(schema)
    holding = Holding(pipeline, lambda: sink)
    query = start_query(session, pipeline, Batches(pipeline, progress, threading.Lock(), holding))
    deadline = time.monotonic() + _PATIENCE_S
    while progress.applied < records and query.isActive and time.monotonic() < deadline:
        time.sleep(0.1)
    query.stop()
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            gateway.proc.wait(_DUMP_S)
    return 0 if progress.applied >= records else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
