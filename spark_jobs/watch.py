"""Pipeline files → running queries: starts, restarts and stops them as the files change."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.config.pipeline import EngineSpec, PipelineSpec
from headrace.model.errors import HeadraceError
from spark_jobs.apply import sink_of
from spark_jobs.batch import Batches
from spark_jobs.desk import Desk
from spark_jobs.explain import explain
from spark_jobs.ownership import Holding
from spark_jobs.progress import Progress
from spark_jobs.stream import start_query

__all__ = ["Watch"]

_log = logging.getLogger("headrace")

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0


@dataclass
class _Running:
    stamp: tuple[int, int]
    spec: PipelineSpec
    progress: Progress
    batches: Batches
    desk: Desk
    looking: threading.Thread | None = None
    query: StreamingQuery | None = None
    pause: float = _FIRST_PAUSE
    retry_at: float = 0.0


class Watch:
    """Keeps one query per pipeline file; one that ends with an error starts again, ever more slowly."""

    def __init__(self, session: SparkSession, engine: EngineSpec) -> None:
        self._session = session
        self._engine = engine
        self._running: dict[Path, _Running] = {}
        # One per sink for good: what a query began before its file changed may still be under way.
        self._turns: dict[Path, threading.Lock] = {}

    def tick(self) -> None:
        """Compare the files with what runs, and act."""
        files = {path: (s.st_mtime_ns, s.st_ino) for path in self._files() if (s := _stat(path))}
        for path in list(self._running):
            if path not in files:
                self._end(self._running.pop(path), "removed")
        for path, stamp in files.items():
            known = self._running.get(path)
            if known is None or known.stamp != stamp:
                if known is not None:
                    self._end(known, "starting")
                with suppress(FileNotFoundError):  # removed since; the next tick sees it
                    self._running[path] = self._load(path, stamp)
        for running in self._running.values():
            self._keep(running)
            running.desk.tick()

    def sign_of_life(self) -> None:
        """Rewrite every progress file, so that a silent one means a dead engine."""
        for running in self._running.values():
            running.progress.write()

    def stop(self) -> None:
        """Stop all queries; a batch under way is abandoned and runs again next time."""
        for running in self._running.values():
            self._end(running, "stopped")
        self._running.clear()

    def _files(self) -> list[Path]:
        return [p for p in self._engine.pipelines.glob("*.json") if not p.name.startswith(".")]

    def _load(self, path: Path, stamp: tuple[int, int]) -> _Running:
        spec = PipelineSpec.model_validate_json(path.read_bytes())
        progress = Progress(self._engine.progress / f"{spec.sink}.json", spec)
        progress.state("paused" if spec.paused else "starting")
        turn = self._turns.setdefault(path, threading.Lock())
        holding = Holding(spec, lambda: sink_of(spec.model_dump_json())[0])
        desk = Desk(spec, self._engine.requests / spec.sink, turn, holding, progress.request)
        return _Running(stamp, spec, progress, Batches(spec, progress, turn, holding), desk)

    def _keep(self, running: _Running) -> None:
        if running.spec.paused or time.monotonic() < running.retry_at:
            return
        query = running.query
        if query is None:
            try:
                running.query = start_query(self._session, running.spec, running.batches)
            except (HeadraceError, PySparkException, OSError) as error:
                self._failed(running, error)
        elif not query.isActive:
            running.query = None
            self._failed(running, query.exception())
        elif running.progress.current == "running":
            running.pause = _FIRST_PAUSE
        elif query.status["message"] == "Waiting for data to arrive" and not running.batches.unavailable:
            # Nothing is left to read, so whatever was wrong is over. A batch says so itself.
            running.progress.state("running")
        at_it = running.looking is not None and running.looking.is_alive()
        if running.query is not None and running.batches.look_is_due and not at_it:
            # Beside this thread: a store may take its time to answer.
            running.looking = threading.Thread(
                target=self._look, args=(running,), name=f"look-{running.spec.sink}", daemon=True
            )
            running.looking.start()

    def _look(self, running: _Running) -> None:
        try:
            running.batches.look(self._session)
        except (HeadraceError, PySparkException) as error:
            _log.error("sink %s cannot be brought forward: %s", running.spec.sink, error)
            if running.progress.current != "failed":
                running.progress.state("failed", explain(error))
            if running.query is not None:
                running.query.stop()

    @staticmethod
    def _failed(running: _Running, error: BaseException | None) -> None:
        if running.progress.current != "failed":
            running.progress.state("failed", explain(error))
        _log.error("query %s failed, next try in %.0f s: %s", running.spec.sink, running.pause, error)
        running.retry_at = time.monotonic() + running.pause
        running.pause = min(running.pause * 2, _LONGEST_PAUSE)

    @staticmethod
    def _end(running: _Running, state: str) -> None:
        running.batches.close()
        if running.query is not None and running.query.isActive:
            running.query.stop()
        running.progress.state(state)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
