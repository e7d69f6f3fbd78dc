"""A Spark driver like the engine's, in a process of its own that ends with the measurement."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from headrace.config.pipeline import EngineSpec
from headrace.local.artefacts import resolve
from headrace.local.driver import driver_cache
from headrace.local.java import spark_java_home
from spark_jobs.session import start, warm_up
from tests.bench.meter import Meter

__all__ = ["apart", "meter_of", "session_in"]

_QUIET = "spark.ui.showConsoleProgress=false"

_Got = TypeVar("_Got")


def apart(work: Callable[..., _Got], *arguments: Any) -> _Got:
    """Return what ``work`` returns in a new process; its JVM ends with it."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(work, *arguments).result()


def session_in(folder: Path, settings: Sequence[str] = ()) -> SparkSession:
    """Return a warm session with the engine's own settings, and some more as ``spark.name=value``."""
    jars = resolve(["spark"])["spark"]
    learnt = driver_cache(jars)
    options = learnt.options(training=False) if learnt else ()
    places = {name: folder / name for name in ("pipelines", "progress", "requests", "run", "logs", "work")}
    spec = EngineSpec(
        **places,
        java_home=spark_java_home(),
        jars=tuple(jars),
        java_options=(*options, *(f"-D{setting}" for setting in (_QUIET, *settings))),
    )
    # Compilers of the JVM and the like look there; where it is does not matter.
    tempfile.tempdir = str(folder)
    session = start(spec)
    session.sparkContext.setLogLevel("ERROR")
    warm_up(session)
    return session


def meter_of(session: SparkSession) -> Meter:
    """Return a meter of the driver's JVM, its Python workers included, and of this process."""
    gateway: Any = session.sparkContext._gateway
    return Meter({"driver": int(gateway.proc.pid)})
