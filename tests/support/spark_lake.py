"""Spark with Delta in a process of its own, as another reader and writer of a lake.

``python -m tests.support.spark_lake FOLDER`` answers one line of JSON, ``{"sql": …}``, with one line of JSON,
``{"rows": […]}`` or ``{"error": …}``, until its input ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from headrace.config.pipeline import EngineSpec
from headrace.local.artefacts import resolve
from headrace.local.java import spark_java_home
from tests.support.patience import WAIT_S

__all__ = ["SparkLake"]

_DELTA = (
    "-Dspark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
    "-Dspark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "-Dspark.databricks.delta.snapshotPartitions=2",
    # VACUUM lists a directory in so many tasks, and MERGE joins in so many; the default is thousands.
    "-Dspark.sql.sources.parallelPartitionDiscovery.parallelism=2",
    "-Dspark.sql.shuffle.partitions=2",
    "-Dspark.databricks.delta.retentionDurationCheck.enabled=false",
)


class SparkLake:
    """Runs SQL in Spark; started by the first statement, stopped with the ``with`` block.

    Args:
        folder: For its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> SparkLake:
        command = [sys.executable, "-m", "tests.support.spark_lake", str(self._folder)]
        with (self._folder / "spark.log").open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=WAIT_S)

    def sql(self, text: str) -> list[list[Any]]:
        """Run a statement; return its rows."""
        answer = self._answer(text)
        assert "error" not in answer, answer["error"]
        rows: list[list[Any]] = answer["rows"]
        return rows

    def refusal(self, text: str) -> str:
        """Run a statement; return what Spark says against it, empty when it has carried it out."""
        return str(self._answer(text).get("error", ""))

    def _answer(self, text: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"sql": text}) + "\n")
        self._process.stdin.flush()
        # Spark says things of its own there, too.
        answer: dict[str, Any] = json.loads(
            next(line for line in self._process.stdout if line.startswith("{"))
        )
        return answer


def main(folder: Path) -> None:
    """Answer."""
    from spark_jobs.session import start

    places = {name: folder / name for name in ("pipelines", "progress", "requests", "run", "logs", "work")}
    jars = tuple(resolve(["spark"])["spark"])
    spec = EngineSpec(**places, java_home=spark_java_home(), jars=jars, java_options=_DELTA)
    session = start(spec)
    session.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        try:
            rows = [[*map(str, row)] for row in session.sql(json.loads(line)["sql"]).collect()]
            print(json.dumps({"rows": rows}), flush=True)
        except Exception as error:  # noqa: BLE001 - whatever Spark says is the answer
            print(json.dumps({"error": f"{type(error).__name__}: {error}"[:2000]}), flush=True)
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
