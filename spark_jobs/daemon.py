"""The process Spark forks its Python workers from: what they need is imported once, before the fork."""

from __future__ import annotations

import pyarrow as pa  # noqa: F401
from pyspark.daemon import manager

import spark_jobs.task_apply  # noqa: F401
from spark_jobs.garbage import look_rarely

if __name__ == "__main__":
    look_rarely()
    manager()
