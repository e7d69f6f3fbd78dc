"""Dead letters on disk: Avro object container files, one per batch that rejected any record."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import fastavro

from headrace.model.errors import EnvironmentError_
from headrace.model.letter import Letter, LetterId
from headrace.observe.disk import make_folder, sync

__all__ = ["SCHEMA", "read_letters", "write_letters"]

_BYTES_OR_NULL = ["null", "bytes"]
SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "DeadLetter",
        "namespace": "headrace",
        "doc": "A record that a sink could not take. One per sink, topic, epoch, partition and offset.",
        "fields": [
            {"name": "sink", "type": "string"},
            {"name": "topic", "type": "string"},
            {"name": "epoch", "type": "long"},
            {"name": "partition", "type": "int"},
            {"name": "offset", "type": "long"},
            {"name": "table", "type": "string"},
            {"name": "code", "type": "string"},
            {"name": "reason", "type": "string"},
            {"name": "row", "type": ["null", "string"]},
            {"name": "at_ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "schema", "type": "string"},
            {"name": "key", "type": _BYTES_OR_NULL},
            {"name": "value", "type": _BYTES_OR_NULL},
            {
                "name": "headers",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Header",
                        "fields": [
                            {"name": "name", "type": "string"},
                            {"name": "value", "type": _BYTES_OR_NULL},
                        ],
                    },
                },
            },
        ],
    }
)


def write_letters(path: Path, letters: Iterable[Letter]) -> None:
    """Replace the file at ``path`` with ``letters``, durably.

    Raises:
        EnvironmentError_: When the disk refuses (``DEAD_LETTERS_UNWRITABLE``); nothing may be settled then.
    """
    temporary = path.with_suffix(".tmp")
    try:
        make_folder(path.parent)
        with temporary.open("wb") as stream:
            fastavro.writer(stream, SCHEMA, map(_as_dict, letters), codec="deflate")
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync(path.parent)
    except OSError as error:
        raise EnvironmentError_(
            f"Rejected records cannot be set aside in {path.parent}: {error.strerror or error}.",
            code="DEAD_LETTERS_UNWRITABLE",
            hint="Make room or mend its rights; the sink waits, and goes on by itself.",
        ) from error


def read_letters(path: Path) -> Iterator[Letter]:
    """Yield the letters of one file."""
    with path.open("rb") as stream:
        for value in fastavro.reader(stream):
            yield _from_dict(value)  # type: ignore[arg-type]


def _as_dict(letter: Letter) -> dict[str, Any]:
    return {
        "sink": letter.sink,
        "topic": letter.id.topic,
        "epoch": letter.id.epoch,
        "partition": letter.id.partition,
        "offset": letter.id.offset,
        "table": letter.table,
        "code": letter.code,
        "reason": letter.reason,
        "row": letter.row,
        "at_ms": letter.at_ms,
        "schema": letter.schema,
        "key": letter.key,
        "value": letter.value,
        "headers": [{"name": name, "value": value} for name, value in letter.headers],
    }


def _from_dict(value: dict[str, Any]) -> Letter:
    return Letter(
        id=LetterId(value["topic"], value["epoch"], value["partition"], value["offset"]),
        sink=value["sink"],
        table=value["table"],
        code=value["code"],
        reason=value["reason"],
        row=value["row"],
        at_ms=round(value["at_ms"].timestamp() * 1000),
        schema=value["schema"],
        key=value["key"],
        value=value["value"],
        headers=tuple((header["name"], header["value"]) for header in value["headers"]),
    )
