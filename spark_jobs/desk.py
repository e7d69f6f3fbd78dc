"""Requests of people to one sink's query, carried out between its batches, so that one writer stays one.

A request is a file; its answer is a file of the same name. One that was asked for twice does no harm.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from headrace.config.pipeline import PipelineSpec, write_private
from headrace.model.change import Ignored, Origin, Record
from headrace.model.errors import HeadraceError
from headrace.model.letter import Letter, LetterId
from headrace.model.position import Position
from spark_jobs.apply import apply_records, holds_of, sink_of
from spark_jobs.carry import NoCarry
from spark_jobs.decode import decoders
from spark_jobs.explain import explain
from spark_jobs.held import Holds, load_holds, save_holds
from spark_jobs.letters import read_letters
from spark_jobs.ownership import Holding
from spark_jobs.report import Report

__all__ = ["Desk", "Request"]


class Request(BaseModel):
    """What may be asked of a sink.

    Args:
        replay: File of letters → those to apply again, as ``[topic, epoch, partition, offset]``.
        release: Table → rows to be no longer taken as behind.
        swept: Table → versions: everything below each, of its partition, was removed by a resnapshot.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    replay: dict[str, list[tuple[str, int, int, int]]] = {}
    release: dict[str, list[str]] = {}
    swept: dict[str, list[int]] = {}


class Desk:
    """Carries out the requests to one sink.

    Args:
        spec: The sink's pipeline.
        requests: Folder in which requests to it appear.
        turn: Held by whoever of this process writes to the sink.
        holding: The process' place as the writer to the sink.
        done: Told how many rows of each table are behind after a request.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        requests: Path,
        turn: threading.Lock,
        holding: Holding,
        done: Callable[[Report], None],
    ) -> None:
        self._spec = spec
        self._requests = requests
        self._turn = turn
        self._holding = holding
        self._done = done
        self._at_work: threading.Thread | None = None

    def tick(self) -> None:
        """Take up what was asked, beside whoever calls this; it waits for the sink's next free moment."""
        if self._at_work is not None and self._at_work.is_alive():
            return
        if any(self._requests.glob("*.json")):
            self._at_work = threading.Thread(target=self._work, name=f"desk-{self._spec.sink}", daemon=True)
            self._at_work.start()

    def _work(self) -> None:
        for path in sorted(self._requests.glob("*.json")):
            wanted = True
            try:
                request = Request.model_validate_json(path.read_bytes())
                wanted = bool(request.replay)
                with self._turn:
                    answer = self._answer(request)
            except Exception as error:  # noqa: BLE001 - whatever it is; a request that stays is tried for ever
                answer = {"error": explain(error)}
            if wanted:
                write_private(path.with_suffix(".answer"), json.dumps(answer))
            path.unlink(missing_ok=True)

    def _answer(self, request: Request) -> dict[str, Any]:
        report = self._replay(request) if request.replay else Report(holds=load_holds(self._spec.checkpoint))
        for table, versions in request.swept.items():
            for version in versions:
                report.holds.empty(table, Position.from_version(version))
        for table, rows in request.release.items():
            for row in rows:
                report.holds.held.get(table, {}).pop(row, None)
        save_holds(self._spec.checkpoint, report.holds)
        self._done(report)
        return {
            "rejects": report.rejects,
            "tables": report.tables,
            "behind": report.holds.counts(),
        }

    def _replay(self, request: Request) -> Report:
        pipeline = self._holding.pipeline()
        sink, tables = sink_of(pipeline)
        letters = sorted(self._letters(request), key=lambda letter: letter.id)
        holds = holds_of(pipeline)
        report = apply_records(_again(letters, self._spec, holds), sink, tables, NoCarry(), holds)
        if report.error is not None:
            self._holding.give_up()
            error = report.error
            raise HeadraceError(error["message"], code=error["code"], hint=error["hint"])
        return report

    def _letters(self, request: Request) -> Iterator[Letter]:
        for name, places in request.replay.items():
            wanted = {LetterId(*place) for place in places}
            file = self._spec.dead_letters / Path(name).name
            yield from (letter for letter in read_letters(file) if letter.id in wanted)


def _again(letters: list[Letter], spec: PipelineSpec, holds: Holds) -> Iterator[Record]:
    """Decode letters as the query would decode them today, at the position they had.

    Those whose row does not lack them any more are passed over: after a truncate, say, nothing in the store
    would tell that they are old.
    """
    by_topic = decoders(spec.model_dump_json())
    epochs = {table.topic: table.epoch for table in spec.tables}
    for letter in letters:
        place = letter.id
        origin = Origin(place.topic, place.partition, place.offset)
        version = Position(place.epoch, place.offset, place.partition).version
        if epochs.get(place.topic) != place.epoch:
            yield Ignored(origin, "its topic is not this one any more")
        elif letter.row is not None and version not in holds.missing(letter.table, letter.row):
            yield Ignored(origin, "superseded")
        else:
            yield by_topic[place.topic].decode_raw(origin, letter.key, letter.value)
