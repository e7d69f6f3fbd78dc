"""Delta tables alone: rows that are Arrow already, appended and merged by deltalake and by Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from headrace.model.change import Change
from sinks.delta.encode import encode
from sinks.delta.shape import KEY, VERSION, shape_of
from tests.bench.apply.products import SCHEMA, batches
from tests.bench.meter import race
from tests.bench.raw.driver import apart, meter_of, session_in
from tests.bench.results import Result
from tests.bench.suite import Benchmark, Setting

__all__ = ["BENCHMARKS"]

_ROWS = 50_000
_MERGED = 5_000
_EXTENSIONS = (
    "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions=2",  # made for large clusters, the default is 50
)
_SAME_KEY = f"target.{KEY} = source.{KEY}"
_NOT_OLDER = f"source.{VERSION} >= target.{VERSION}"
_VECTORS = "delta-spark, deletion vectors"


def _measure(setting: Setting) -> Iterator[Result]:
    yield from apart(_both, _ROWS, setting.runs)


def _both(rows: int, runs: int) -> list[Result]:
    work = batches(rows)
    table = _arrow(list(chain.from_iterable(work["insert"])))
    # Spread over the whole table, as changes are: the worst case for who rewrites files.
    changed = list(chain.from_iterable(work["update"]))[:: max(1, rows // _MERGED)]
    batch = _arrow(changed)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        root = Path(folder)
        session = session_in(root, _EXTENSIONS)
        found = [_append(session, root, batch, runs), _merge(session, root, table, batch, runs)]
        session.stop()
    return found


def _arrow(changes: list[Change]) -> pa.Table:
    keys = pa.array([change.key.id for change in changes], pa.string())
    versions: np.ndarray = np.array([change.position.version for change in changes], np.int64)
    rows, rejected = encode(shape_of(SCHEMA), changes, keys, versions)
    assert not rejected
    return rows


def _frame(session: SparkSession, rows: pa.Table) -> DataFrame:
    frame = session.createDataFrame(rows).cache()
    frame.count()  # in the JVM now, as a batch that was decoded there
    return frame


def _append(session: SparkSession, root: Path, batch: pa.Table, runs: int) -> Result:
    frame = _frame(session, batch)
    ours, sparks = str(root / "append-deltalake"), str(root / "append-spark")
    rows = int(batch.num_rows)

    def by_library() -> int:
        write_deltalake(ours, batch, mode="append")
        return rows

    def by_spark() -> int:
        frame.write.format("delta").mode("append").save(sparks)
        return rows

    sides = race({"deltalake": by_library, "delta-spark": by_spark}, runs, meter_of(session))
    return Result(
        "raw.delta.append",
        "a batch of new rows appended, without a look at their keys",
        "rows/s",
        sides,
        equal=_content(ours).equals(_content(sparks)),
        versions=_versions(),
        settings={"rows a batch": rows, "row": "a product of twelve columns"},
    )


def _merge(session: SparkSession, root: Path, table: pa.Table, batch: pa.Table, runs: int) -> Result:
    path = str(root / "merge-deltalake")
    write_deltalake(path, table)
    _frame(session, batch).createOrReplaceTempView("source")
    ways: dict[str, Callable[[], int]] = {"deltalake": partial(_by_library, path, batch)}
    full = _frame(session, table)
    for name, vectors in (("delta-spark", "false"), (_VECTORS, "true")):
        place = str(root / name)
        full.coalesce(1).write.format("delta").option("delta.enableDeletionVectors", vectors).save(place)
        ways[name] = partial(_by_spark, session, place, batch.num_rows)
    full.unpersist()
    sides = race(ways, runs, meter_of(session))
    library = _content(path)
    seen = session.read.format("delta").load(str(root / _VECTORS)).toArrow()
    return Result(
        "raw.delta.merge",
        "a batch of changed rows merged, versions compared",
        "rows/s",
        sides,
        equal=library.equals(_content(str(root / "delta-spark"))) and library.equals(_sorted(seen)),
        versions=_versions(),
        settings={"rows a batch": batch.num_rows, "rows in the table": table.num_rows, "files at first": 1},
    )


def _by_library(path: str, batch: pa.Table) -> int:
    merge = DeltaTable(path).merge(batch, _SAME_KEY, source_alias="source", target_alias="target")
    merge.when_matched_update_all(_NOT_OLDER).when_not_matched_insert_all().execute()
    return int(batch.num_rows)


def _by_spark(session: SparkSession, place: str, rows: int) -> int:
    session.sql(
        f"MERGE INTO delta.`{place}` AS target USING source ON {_SAME_KEY} "
        f"WHEN MATCHED AND {_NOT_OLDER} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ).collect()
    return rows


def _content(path: str) -> pa.Table:
    return _sorted(DeltaTable(path).to_pyarrow_table())


def _sorted(rows: pa.Table) -> pa.Table:
    """Return the rows in one order and the types of one writer, so that two tables can be compared."""
    names = sorted(rows.schema.names)
    wanted = pa.schema([shape_of(SCHEMA).arrow.field(name).remove_metadata() for name in names])
    return (
        rows.select(names).cast(wanted).sort_by([(KEY, "ascending"), (VERSION, "ascending")]).combine_chunks()
    )


def _versions() -> dict[str, str]:
    return {
        "deltalake (Python)": version("deltalake"),
        "delta-spark (jar)": "4.4.0",
        "PySpark": version("pyspark"),
    }


BENCHMARKS = (
    Benchmark(
        "raw.delta",
        "raw",
        1.0,
        headline=False,
        run=_measure,
        promises=("raw.delta.append", "raw.delta.merge"),
    ),
)
