"""The Spark session of the engine: every setting that costs or saves a reader's milliseconds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.config.pipeline import DRIVER_JVM, EngineSpec
from spark_jobs.polling import BRISK_MS

__all__ = ["ended", "share_of_tasks", "start", "warm_up"]

_SHARES = 4
"""So many sinks' batches run at once, each in at least two tasks."""

_STREAMING = "spark.sql.streaming"


_NEVER_MS = str(10 * 365 * 24 * 3_600_000)


def _settings(spec: EngineSpec) -> dict[str, str]:
    # An executor within this process cannot be lost. One that was silent while its machine slept would be let
    # go; Spark never takes it back, and ends this process ten minutes later.
    lost_ms = {"spark.storage.blockManagerHeartbeatTimeoutMs": _NEVER_MS}
    return {
        **(lost_ms if spec.master.startswith("local") else {}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        # Two partitions and no adaptive re-planning: batches are small, planning is what they cost.
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.python.daemon.module": "spark_jobs.daemon",
        "spark.task.maxFailures": "1",
        "spark.cleaner.periodicGC.interval": "10min",
        f"{_STREAMING}.pollingDelay": f"{BRISK_MS}ms",
        f"{_STREAMING}.noDataMicroBatches.enabled": "false",
        f"{_STREAMING}.minBatchesToRetain": "20",
        f"{_STREAMING}.metricsEnabled": "false",
        f"{_STREAMING}.checkpoint.fileChecksum.enabled": "false",
        # Hadoop's own local file system forks a process for each checkpoint file (150 ms a batch).
        # The bare one renames in-process; it promises as much: a rename, no fsync.
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        f"{_STREAMING}.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }


def start(spec: EngineSpec) -> SparkSession:
    """Start the driver's JVM and session; 5–10 s cold on two cores."""
    spec.work.mkdir(parents=True, exist_ok=True)
    options = [
        f"-Djava.io.tmpdir={spec.work}",
        *DRIVER_JVM,
        *spec.java_options,
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
    ]
    os.environ["JAVA_HOME"] = str(spec.java_home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = str(spec.work)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(
        [
            f"--driver-memory {spec.driver_memory}",
            f"--driver-class-path {':'.join(map(str, spec.jars))}",
            f"--driver-java-options '{' '.join(options)}'",
            "pyspark-shell",
        ]
    )
    builder = SparkSession.builder.appName("headrace").master(spec.master)
    for name, value in _settings(spec).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def share_of_tasks(session: SparkSession) -> int:
    """Return in how many tasks a batch is applied: not in all that run at once, for its store may hang."""
    return max(2, session.sparkContext.defaultParallelism // _SHARES)


def warm_up(session: SparkSession) -> None:
    """Run as many tiny tasks as a batch has, so that the first real ones find their Python workers there."""
    tasks = share_of_tasks(session)
    session.sparkContext.parallelize(range(tasks), tasks).mapPartitions(iter).collect()


def ended(session: SparkSession) -> bool:
    """Return whether Spark has ended its context by itself: nothing runs in this driver any more.

    It does so, for instance, after its machine has slept for longer than an executor may be silent.
    """
    context = session.sparkContext._jsc
    return context is None or bool(context.sc().isStopped())
