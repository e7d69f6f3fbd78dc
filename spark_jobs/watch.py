"""Pipeline files → running queries: starts, restarts and stops them as the files change."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.config.pipeline import EngineSpec, PipelineSpec, load_pipeline
from headrace.model.errors import HeadraceError
from spark_jobs.apply import sink_of
from spark_jobs.batch import Batches
from spark_jobs.checkpoint import mend, put_aside
from spark_jobs.desk import Desk
from spark_jobs.explain import TOPIC_MISSING, explain
from spark_jobs.ownership import Holding
from spark_jobs.polling import Polling
from spark_jobs.progress import Progress, replace_json
from spark_jobs.stream import start_query

__all__ = ["Watch"]

_log = logging.getLogger("headrace")

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_STOP_S = 5.0
_SOON_S = 0.5
"""So long a query that ends is waited for before the others are looked after: nearly always less."""


@dataclass
class _Running:
    stamp: tuple[int, int]
    spec: PipelineSpec
    progress: Progress
    batches: Batches
    desk: Desk
    looking: threading.Thread | None = None
    query: StreamingQuery | None = None
    polling: Polling | None = None
    pause: float = _FIRST_PAUSE
    retry_at: float = 0.0


@dataclass(frozen=True)
class _Ending:
    thread: threading.Thread
    running: _Running


class Watch:
    """Keeps one query per pipeline file; one that ends with an error starts again, ever more slowly."""

    def __init__(self, session: SparkSession, engine: EngineSpec) -> None:
        self._session = session
        self._engine = engine
        self._running: dict[Path, _Running] = {}
        # Held while one is put in or out, so that nothing is said of what has ended.
        self._those_running = threading.Lock()
        # Queries that are ending. A store that does not answer may hold one up; the others go on meanwhile.
        self._ending: dict[Path, _Ending] = {}
        # One per sink for good: what a query began before its file changed may still be under way.
        self._turns: dict[Path, threading.Lock] = {}
        self._refused: dict[Path, tuple[int, int]] = {}
        self._take_over()

    def tick(self, go_on: Callable[[], None] = lambda: None) -> None:
        """Compare the files with what runs, and act.

        Args:
            go_on: Called after each sink: one after the other they may take long.
        """
        files = {path: (s.st_mtime_ns, s.st_ino) for path in self._files() if (s := _stat(path))}
        for path in list(self._running):
            go_on()
            if path not in files:
                self._end(path, "removed")
        for path, stamp in files.items():
            known = self._running.get(path)
            if known is not None and known.stamp != stamp:
                self._end(path, "starting")
        for path in [path for path, ending in self._ending.items() if not ending.thread.is_alive()]:
            ended = self._ending.pop(path).running.progress
            # Once it is said, whoever waited for it may have taken the file away.
            if path not in files and ended.current != "removed":
                ended.state("removed")
        self._let_go(self._refused.keys() - files.keys())
        for path, stamp in files.items():
            go_on()
            if path not in self._running and path not in self._ending:
                self._take_up(path, stamp)
        for running in self._running.values():
            go_on()
            try:
                self._keep(running)
                if running.spec.runs:
                    running.desk.tick()
            except Exception as error:  # noqa: BLE001 - whatever it is, the other sinks go on
                self._failed(running, error)

    def sign_of_life(self) -> None:
        """Rewrite every progress file, so that a silent one means a dead engine. Any thread may call it."""
        with self._those_running:
            for running in self._running.values():
                with suppress(OSError):  # that of one sink is no reason to keep the others silent
                    running.progress.write()

    def stop(self) -> None:
        """Stop all queries; a batch under way is abandoned and runs again next time."""
        for path in list(self._running):
            self._end(path, "stopped", wait_s=0.0)
        deadline = time.monotonic() + _STOP_S
        for ending in self._ending.values():
            ending.thread.join(max(0.0, deadline - time.monotonic()))

    def _take_over(self) -> None:
        """Say of what an engine before this one ran, and was taken away since, that it is over.

        That one may have died before it could; whoever took it away waits for this word.
        """
        for known in self._engine.progress.glob("[!.]*.json"):
            path = self._engine.pipelines / known.name
            if known.name != "engine.json" and not path.exists():
                self._tell(path, "removed")

    def _files(self) -> list[Path]:
        return [p for p in self._engine.pipelines.glob("*.json") if not p.name.startswith(".")]

    def _take_up(self, path: Path, stamp: tuple[int, int]) -> None:
        try:
            running = self._load(path, stamp)
            with self._those_running:
                self._running[path] = running
            self._refused.pop(path, None)
        except FileNotFoundError:
            self._tell(path, "removed")  # taken away since; whoever did so waits for this word
        except OSError as error:
            if self._refused.get(path) != stamp:
                self._refused[path] = stamp
                _log.error("the files of %s cannot be read: %s", path.stem, error)
            unread = HeadraceError(
                f"A file of the sink cannot be used: {error}.",
                code="PIPELINE_UNREADABLE",
                hint="Give the file to the account that the engine runs as; it is tried again by itself.",
            )
            self._tell(path, "failed", unread)
        except ValueError as error:
            # One sink's file is no reason to stop the others.
            if self._refused.get(path) != stamp:
                self._refused[path] = stamp
                _log.error("the pipeline file %s says nothing to go by: %s", path, error)
                damaged = HeadraceError(
                    f"The sink's pipeline file {path.name} is damaged.",
                    code="PIPELINE_DAMAGED",
                    hint=f"headrace sink resume {path.stem}",
                )
                self._tell(path, "failed", damaged)

    def _let_go(self, gone: Collection[Path]) -> None:
        """Say of files that could not be taken up, and were taken away, that it is over: somebody waits."""
        for path in gone:
            del self._refused[path]
            self._tell(path, "removed")

    def _tell(self, path: Path, state: str, error: HeadraceError | None = None) -> None:
        """Say of a pipeline that cannot be taken up how it is."""
        known = self._engine.progress / path.name
        with suppress(OSError, ValueError):
            told = json.loads(known.read_text())
            replace_json(known, {**told, "state": state, "error": error.as_dict() if error else None})

    def _load(self, path: Path, stamp: tuple[int, int]) -> _Running:
        spec = PipelineSpec.model_validate_json(path.read_bytes())
        if aside := put_aside(spec.checkpoint):
            _log.error(
                "the checkpoint of %s is damaged and lies in %s; all is applied anew", spec.sink, aside
            )
        progress = Progress(self._engine.progress / f"{spec.sink}.json", spec)
        progress.state("starting" if spec.runs else "paused")
        turn = self._turns.setdefault(path, threading.Lock())
        holding = Holding(spec, lambda: sink_of(spec.model_dump_json())[0])
        batches = Batches(spec, progress, turn, holding)
        requests, runs = self._engine.requests / spec.sink, partial(_runs, path)
        desk = Desk(spec, requests, turn, holding, batches.requested, runs)
        return _Running(stamp, spec, progress, batches, desk)

    def _keep(self, running: _Running) -> None:
        if not running.spec.runs or time.monotonic() < running.retry_at:
            return
        query = running.query
        if query is None:
            mend(running.spec.checkpoint)
            running.batches.started()
            running.query = start_query(self._session, running.spec, running.batches)
            running.polling = Polling(running.query)
        elif not query.isActive:
            running.query = running.polling = None
            why = query.exception()
            # A topic that is gone concerns its table; the others are read on at once.
            if explain(why)["code"] != TOPIC_MISSING or not running.batches.lose_topics():
                self._failed(running, why)
        elif running.progress.current == "running":
            running.pause = _FIRST_PAUSE
        elif query.status["message"] == "Waiting for data to arrive" and running.batches.proven:
            # Nothing is left to read, and the store is as it was left. A batch says so itself.
            running.progress.state("running")
        if running.polling is not None:
            running.polling.tick(running.progress.batch_id)
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
            # The query goes on: a batch of it meets the same, and only what succeeds takes the word back.
            _log.error("sink %s is not as it was left: %s", running.spec.sink, error)
            if running.progress.current != "failed" and not running.batches.over:
                running.progress.state("failed", explain(error))

    @staticmethod
    def _failed(running: _Running, error: BaseException | None) -> None:
        if running.progress.current != "failed":
            running.progress.state("failed", explain(error))
        _log.error("query %s failed, next try in %.0f s: %s", running.spec.sink, running.pause, error)
        running.retry_at = time.monotonic() + running.pause
        running.pause = min(running.pause * 2, _LONGEST_PAUSE)

    def _end(self, path: Path, state: str, *, wait_s: float = _SOON_S) -> None:
        with self._those_running:
            running = self._running.pop(path)
        running.desk.close()
        running.batches.close()
        name = f"end-{running.spec.sink}"
        told = (running, self._turns[path], state)
        thread = threading.Thread(target=_stop, args=told, name=name, daemon=True)
        self._ending[path] = _Ending(thread, running)
        thread.start()
        thread.join(wait_s)


def _stop(running: _Running, turn: threading.Lock, state: str) -> None:
    try:
        if running.query is not None and running.query.isActive:
            running.query.stop()
    finally:
        # Spark waits for no batch, and a look is none: who is told that the sink rests may count on it.
        with turn:
            running.progress.state(state)


def _runs(path: Path) -> bool:
    """Return whether a pipeline's file says that it is to run."""
    try:
        return load_pipeline(path).runs
    except (OSError, ValueError):  # it is gone, or damaged
        return False


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
