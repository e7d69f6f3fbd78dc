"""Values of every fragile kind in the heartbeat's row: what arrives is compared with what was sent.

A worker that is not ours may have another time zone, another driver or other options, and tell values as
others. A user's value would then be another in every store, and nothing else would say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from headrace.model.schema import LogicalType, TableSchema

__all__ = ["added", "given", "holds", "misread"]

_ROW = 1
"""The heartbeat's; others are marks, and hold no specimens."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class _Specimen:
    """One value.

    Args:
        type: Its type, which a difference names.
        literal: The value in SQL.
        told: As a connector tells it that reads it right.
        of: What columns mean whose values are read in the same way. Ranges are of no kind of their own.
        streamed: Whether only the stream tells it so. What a read row tells of such values is in doubt, and
            looked up by the row's key.
    """

    type: str
    literal: str
    told: Any
    of: frozenset[LogicalType]
    streamed: bool = False


def _micros(*moments: str) -> list[int]:
    """Return microseconds since 1970 of moments without a zone."""
    spans = [datetime.fromisoformat(moment).replace(tzinfo=timezone.utc) - _EPOCH for moment in moments]
    return [(span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds for span in spans]


# Hours that clocks somewhere skip: in New York, London, Paris, Sydney, Lord Howe, Santiago, Cairo, Beirut,
# Havana, Tehran; and the day on which New York's clocks first had whole minutes.
_SKIPPED = (
    "2024-03-10 02:30", "2024-03-31 01:30", "2024-03-31 02:30", "2024-10-06 02:30", "2024-10-06 02:15",
    "2024-09-08 00:30", "2024-04-26 00:30", "2024-03-31 00:30", "2024-03-10 00:30", "2021-03-22 00:30",
    "1883-11-18 12:01",
)  # fmt: skip
_T = LogicalType
_FLOAT, _MONEY = frozenset({_T.FLOAT32, _T.FLOAT64}), frozenset({_T.NUMERIC})
_DATE, _TIMESTAMP = frozenset({_T.DATE, _T.OTHER}), frozenset({_T.TIMESTAMP, _T.OTHER})
_INSTANT = frozenset({_T.TIMESTAMPTZ, _T.OTHER})
_SPECIMENS = {
    "specimen_bytea": _Specimen("bytea", r"'\x00ff10'", "AP8Q", frozenset({_T.BYTES})),
    "specimen_interval": _Specimen(
        "interval",
        "'1 year 2 mons 3 days 04:05:06.789012'",
        "P1Y2M3DT4H5M6.789012S",
        frozenset({_T.INTERVAL}),
    ),
    "specimen_money": _Specimen("money", "1234.56::numeric::money", "1234.56", _MONEY),
    "specimen_double": _Specimen("double precision", "123456789.12345679", 123456789.12345679, _FLOAT),
    "specimen_date": _Specimen("date", "'0001-01-01'", -719162, _DATE),
    "specimen_ancient": _Specimen("date", "'0044-03-15 BC'", -735160, _DATE, streamed=True),
    "specimen_endless": _Specimen("date", "'infinity'", 2_146_033_979, _DATE, streamed=True),
    "specimen_timestamp": _Specimen(
        "timestamp", "'1500-02-28 12:34'", _micros("1500-02-28 12:34")[0], _TIMESTAMP
    ),
    "specimen_antique": _Specimen("timestamp", "'0044-03-15 12:00 BC'", -63_517_780_800_000_000, _TIMESTAMP),
    "specimen_never": _Specimen("timestamp", "'-infinity'", -(1 << 63), _TIMESTAMP),
    "specimen_instant": _Specimen(
        "timestamp with time zone", "'0044-03-15 12:00+00 BC'", "-0043-03-15T12:00:00.000000Z", _INSTANT
    ),
    "specimen_forever": _Specimen("timestamp with time zone", "'infinity'", "infinity", _INSTANT),
    "specimen_timestamps": _Specimen(
        "timestamp[]",
        "'{" + ",".join(f'"{moment}"' for moment in _SKIPPED) + "}'",
        _micros(*_SKIPPED),
        _TIMESTAMP,
    ),
    "specimen_instants": _Specimen(
        "timestamp with time zone[]",
        "'{\"1883-11-18 12:01+00\"}'",
        ["1883-11-18T12:01:00.000000Z"],
        _INSTANT,
    ),
}


def added() -> str:
    """Return what gives the heartbeat's table the columns of specimens that it lacks, as SQL."""
    return ", ".join(f"ADD COLUMN IF NOT EXISTS {name} {s.type}" for name, s in _SPECIMENS.items())


def given() -> str:
    """Return what gives a row of it the specimens, as SQL."""
    return ", ".join(f"{name} = {specimen.literal}" for name, specimen in _SPECIMENS.items())


def holds(row: Mapping[str, Any]) -> bool:
    """Return whether a row of the heartbeat's table is the one that holds specimens."""
    return bool(row.get("id") == _ROW)


def misread(record: Mapping[str, Any], schema: TableSchema | None = None) -> list[str]:
    """Return the types of which a row of the heartbeat's table arrived with another value.

    With a ``schema`` only those count whose values are read as some of its columns are. A table without
    specimens, or without some, of a source that was added by an older version, tells nothing of them.
    """
    row, is_read = record.get("after") or {}, record.get("op") == "r"
    if not holds(row):
        return []
    meant = {column.type for column in schema.told} if schema else set(LogicalType)
    found = {
        specimen.type
        for name, specimen in _SPECIMENS.items()
        if name in row
        and row[name] != specimen.told
        and specimen.of & meant
        and not (is_read and specimen.streamed)
    }
    return sorted(found)
