"""Rows of which a run, and the stream beside it, have told a part only.

While a part of a table is read, the connector drops each row of it that the stream tells of meanwhile. The
stream leaves out large values that an update did not touch. Such a row was not told whole since the run
began: a store fills it up from what it had before, which may be what the run is to mend. It is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from confluent_kafka import Message

from connectors.debezium import Decoder
from headrace.control.registry import SourceTableEntry
from headrace.control.runs.job import Job
from headrace.control.runs.left_out import TablesUnread, Why
from headrace.model.change import Change, Op
from headrace.model.key import Key
from headrace.model.schema import LogicalType, TableId, TableSchema

__all__ = ["Untold"]

_AT_ONCE = 500
"""So many rows are asked for in one statement."""
_MOST_ROUNDS = 20
"""A row that changes each of so many times while it is read once more changes all the while."""
_MOST_KNOWN = 100_000
"""Of so many rows of a table it is known how often they were asked for."""
_MOST_HELD = 200_000
"""So many rows that were told in part are held at once; for each so many the topics are read once more."""
_WHOLE = 0
_HEED_EVERY = 5_000
_READ = b'"op":"r"'
"""In a record of a row that was read, and in no other: quotes within values are escaped."""
_SMALL = frozenset(
    {
        LogicalType.BOOLEAN,
        LogicalType.INT16,
        LogicalType.INT32,
        LogicalType.INT64,
        LogicalType.FLOAT32,
        LogicalType.FLOAT64,
        LogicalType.UUID,
        LogicalType.ENUM,
        LogicalType.DATE,
        LogicalType.TIME,
        LogicalType.TIMESTAMP,
        LogicalType.TIMESTAMPTZ,
        LogicalType.INTERVAL,
    }
)
"""Types whose values the log always tells."""


_Rows = dict[bytes, Key]
_Spans = dict[tuple[str, int], tuple[int, int]]
WholeRows = Callable[[Sequence[TableId]], Mapping[TableId, str]]


class Untold:
    """Finds these rows in what the topics have got since the run's marks; each look goes on where it was.

    Args:
        job: The run, whose marks are known at the first look.
        whole_rows: Tells the statements after which the log tells whole rows of tables.
    """

    def __init__(self, job: Job, whole_rows: WholeRows) -> None:
        self._job = job
        self._whole_rows = whole_rows
        self._next: dict[tuple[str, int], int] = {}
        self._left: dict[str, dict[bytes, Key]] = {}
        self._asked: dict[str, dict[bytes, int]] = {}  # how often a row was asked for until it was told whole

    def rows(self) -> dict[str, list[Key]]:
        """Return topic → rows to be read once more, some hundreds at a time; empty when there are none.

        Raises:
            TablesUnread: When rows change each time that they are read (``RESNAPSHOT_ROWS_BUSY``).
            Aborted: When somebody has asked for that.
            StackError: When Kafka does not answer.
        """
        run, taken, room = self._job.run, dict[str, list[Key]](), _AT_ONCE
        tables = [table for table in self._job.tables(run) if _may_be_large(table.schema)]
        busy = [table.schema.table for table in tables if self._look(table, run.plan["marks"][table.topic])]
        if busy:
            raise _refusal(run.id, busy, self._whole_rows(busy))
        for table in tables:
            left = self._left[table.topic]
            chosen = list(left)[:room]
            if chosen:
                taken[table.topic] = [left.pop(raw) for raw in chosen]
                room -= len(chosen)
                _count(self._asked[table.topic], chosen)
        return taken

    def _look(self, table: SourceTableEntry, marks: list[int]) -> bool:
        """Look for rows of a table; return whether one changes each time that it is read."""
        left, asked = self._left.setdefault(table.topic, {}), self._asked.setdefault(table.topic, {})
        found = self._found(table, marks, asked)
        left.update(found)
        return any(asked.get(raw, 0) >= _MOST_ROUNDS for raw in found)

    def _found(self, table: SourceTableEntry, marks: list[int], asked: dict[bytes, int]) -> _Rows:
        ends = self._job.kafka.ends([table.topic], committed=True)
        spans: _Spans = {}
        for place, (low, end) in ends.items():
            begin = max(low, self._next.get(place, marks[place[1]]))
            spans[place] = (begin, end)
            self._next[place] = end
        decoder = Decoder(table.schema, table.epoch, self._job.source.placeholder)
        found: dict[bytes, Key] = {}
        rest = spans
        while rest:
            partial, rest = self._partial(rest, decoder, asked)
            found |= self._lacking(spans, decoder, partial)
            partial.clear()  # before as many others are held
        return found

    def _partial(self, spans: _Spans, decoder: Decoder, asked: dict[bytes, int]) -> tuple[_Rows, _Spans]:
        """Return rows that were told in part, and not whole since; and what is left to be looked at."""
        partial: dict[bytes, Key] = {}
        for message, raw, value in self._records(spans):
            if _READ in value:
                if raw in asked:
                    asked[raw] = _WHOLE
                if raw not in partial:
                    continue
            record = decoder.decode_raw(_Place(message), raw, value)
            if _is_whole(record):
                partial.pop(raw, None)
            elif not isinstance(record, Change) or record.op is Op.DELETE:
                if asked.get(raw) == _WHOLE:
                    asked[raw] = 1  # another row may get its key, and some of its values
            elif asked.get(raw) != _WHOLE:
                partial[raw] = record.key
                if len(partial) >= _MOST_HELD:
                    return partial, _after(spans, _Place(message))
        return partial, {}

    def _lacking(self, spans: _Spans, decoder: Decoder, partial: _Rows) -> _Rows:
        """Return those of the rows that were not told whole either, before or after, since they are there."""
        whole = dict.fromkeys(partial, False)
        for message, raw, value in self._records(spans) if partial else ():
            if raw not in partial:
                continue
            record = decoder.decode_raw(_Place(message), raw, value)
            if _is_whole(record):
                whole[raw] = True
            elif not isinstance(record, Change) or record.op is Op.DELETE:
                whole[raw] = False
        return {raw: key for raw, key in partial.items() if not whole[raw]}

    def _records(self, spans: _Spans) -> Iterator[tuple[Message, bytes, bytes]]:
        """Yield each record that has a key and a value, with them."""
        seen = 0
        for (topic, partition), (begin, end) in spans.items():
            for message in self._job.kafka.records(topic, partition, begin, end):
                seen += 1
                if seen % _HEED_EVERY == 0:
                    self._job.heed()
                raw, value = message.key(), message.value()
                if raw and value:
                    yield message, bytes(raw), bytes(value)


def _is_whole(record: object) -> bool:
    return isinstance(record, Change) and record.op is not Op.DELETE and not record.absent


def _after(spans: _Spans, last: _Place) -> _Spans:
    """Return what is left of spans, which are read one after the other."""
    places = list(spans)
    at = (last.topic, last.partition)
    left = {place: spans[place] for place in places[places.index(at) :]}
    return {**left, at: (last.offset + 1, spans[at][1])}


def _count(asked: dict[bytes, int], rows: Sequence[bytes]) -> None:
    """Note that rows are asked for; forget those of which nothing was heard for long."""
    for raw in rows:
        asked[raw] = asked.pop(raw, 0) + 1
    for raw in list(asked)[:-_MOST_KNOWN]:
        del asked[raw]


def _refusal(run: str, busy: Sequence[TableId], whole_rows: Mapping[TableId, str]) -> TablesUnread:
    said = "change so often that their large values cannot be read."
    full = {table: whole_rows.get(table, "") for table in busy}
    again = f"headrace resnapshot resume {run}"
    statements = " ".join(filter(None, full.values()))
    return TablesUnread(
        f"Rows of {', '.join(map(str, busy))} {said}",
        code="RESNAPSHOT_ROWS_BUSY",
        hint=f"{statements} -- then: {again}" if statements else f"{again}  # when they change less often",
        tables={table: Why(f"Rows of {table} {said}", alter, alone=False) for table, alter in full.items()},
    )


class _Place:
    """Where a message came from."""

    __slots__ = ("offset", "partition", "topic")

    def __init__(self, message: Message) -> None:
        self.topic = message.topic() or ""
        self.partition = message.partition() or 0
        self.offset = message.offset() or 0


def _may_be_large(schema: TableSchema) -> bool:
    return any(column.dimensions or column.type not in _SMALL for column in schema.told)
