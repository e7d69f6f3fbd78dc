# ruff: noqa: E501
"""Writes ``docs/types.md`` from the code and the golden records: ``python -m tests.golden.page``."""

from __future__ import annotations

from pathlib import Path

from connectors.postgres.types import array_limit, is_list, too_wide, wants_full
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.delta.shape import shape_of
from sinks.elasticsearch.mapping import properties
from tests.golden.meaning import Golden, column_of, goldens

__all__ = ["page"]

PAGE = Path(__file__).parents[2] / "docs" / "types.md"

_HEAD = """\
# What each Postgres type becomes

Written by `make docs` from the code and from records of the real connector (`tests/golden/*.jsonl`, recorded by
`make golden`). `tests/unit/test_golden.py` holds every value there against Postgres' own output, from snapshot and from
stream; `sinks/contract/`'s suite holds every meaning against every store, there and back.

A value arrives equal or its record is refused by name; it is never rounded and never a placeholder. A column of a type
that is *left out* is named at registration. A domain is what it is based on; one over an array needs REPLICA IDENTITY FULL.

"""

_TAIL = """
Any other type, such as those of extensions that are not in this table, is left out by name: no record of the real
connector has been held against it.

A vector is kept in the numbers that Postgres prints. PostGIS' own output, which is what is kept, is the EWKB in hexadecimal
digits: SRID, Z and M, empty and curved shapes included. `value::geometry` reads it back, as do PostGIS' clients.

The document form is what Redis holds as JSON (in `hash` format each field holds that form) and what Elasticsearch keeps
in `_source`; the field type only decides how it is searched. A value beyond what a field can index, such as NaN or a year
past 9999, stays in `_source` and is listed in `_ignored`.

## Values that are not delivered, or not as they are told

| what | what happens |
|---|---|
| `date` before Christ or of 5 to 14 October 1582 | reading tells another date, the stream does not. Refused at registration (`SOURCE_VALUES`); where such a row is read later, each date before 26 October 1582 is looked up in the database by the row's key. One before 1582 BC shows no doubt: a run leaves its table out by name |
| `interval` infinity (Postgres 17) | told as zero; so each zero is looked up in the database by the row's key, and arrives as `"infinity"` where it is that |
| arrays of several dimensions | told as an array of NULLs, or of Java's names for objects. Refused at registration (`SOURCE_VALUES`); such an array that comes later is looked up in the database by the row's key, and refused by name where it is one (`VALUE_IN_DOUBT`), to the dead letter queue. `{NULL}` arrives as it is |
| arrays in a key, of NULLs only | refused by name (`RECORD_MALFORMED`), to the dead letter queue: no row can be asked for by such a key |
| composite types, such as `pair`, and arrays of them | the connector sends no such column: it is left out, and named at registration |
| array bounds other than 1 | are not kept |
| `numeric[]` with NaN or infinity, enum arrays with NULL | told as NULL; so each NULL of such a column is looked up in the database by the row's key, and the array arrives as it is; the column is named at registration (`SOURCE_COLUMN_LIMIT`) |
| `timestamp` beyond the year 294246 | refused by name (`RECORD_MALFORMED`), to the dead letter queue |
| `json` with the same key twice in an object | Elasticsearch refuses the row by name, or keeps the document beside it (`unheld`; not in an array); the others keep both keys |
| `money` of a session whose `lc_monetary` has another number of digits | Postgres keeps a whole number of the session's unit, and nothing tells which that was. What database, roles and server have set is looked at once a second (`MONEY_MISREAD`). Not told: a session that sets it for itself, one that keeps what was set when it began, and what is set and put back between two looks, of which no row is left. Use `numeric`, or end the sessions that began before it was put back |
| infinite `date`, `timestamp`, `timestamptz` | kept as `"infinity"` in documents; Delta refuses the row by name, or keeps the value beside it (`unheld`, at `headrace sink add` or later: `headrace sink set`) |
| NaN in a number with limited digits | kept in documents; Delta refuses the row by name, or keeps the value beside it (`unheld`) |
| columns of a table whose REPLICA IDENTITY is taken back from FULL | large unchanged values of the types marked FULL arrive as NULL, or stop the connector where the column is NOT NULL: do not |
"""

_FULL = "only under REPLICA IDENTITY FULL"

_FORMS = {
    LogicalType.BOOLEAN: "`true`, `false`",
    LogicalType.INT16: "number",
    LogicalType.INT32: "number",
    LogicalType.INT64: "number",
    LogicalType.FLOAT32: 'number; `"NaN"`, `"Infinity"`',
    LogicalType.FLOAT64: 'number; `"NaN"`, `"Infinity"`',
    LogicalType.NUMERIC: "string, every digit",
    LogicalType.TEXT: "string",
    LogicalType.UUID: "string",
    LogicalType.ENUM: "string",
    LogicalType.JSON: "the document itself",
    LogicalType.BYTES: "base64",
    LogicalType.DATE: "ISO-8601",
    LogicalType.TIME: "`HH:MM:SS.ffffff`, 24:00:00 kept",
    LogicalType.TIMESTAMP: "ISO-8601 without zone",
    LogicalType.TIMESTAMPTZ: "ISO-8601 in UTC",
    LogicalType.INTERVAL: "ISO-8601 duration, fields kept",
    LogicalType.OTHER: "string, Postgres' text output",
}


def page() -> str:
    """Return the page."""
    lines = ["| Postgres | meaning | document form | Elasticsearch | Delta | |", "|---|---|---|---|---|---|"]
    seen: dict[str, Golden] = {}
    for golden in goldens():
        if not golden.phase.startswith("unchanged"):
            seen.setdefault(golden.native, golden)
    lines += [_line(golden) for golden in seen.values()]
    return _HEAD + "\n".join(lines) + "\n" + _TAIL


def _line(golden: Golden) -> str:
    column = column_of(golden)
    if column is None:
        why = (
            "more dimensions than the connector can count" if too_wide(golden.type[0], golden.type[4]) else ""
        )
        return f"| `{golden.native}` | *left out* | | | | {why} |".replace("  ", " ")
    schema = TableSchema(TableId("public", "t"), (Column("id", LogicalType.INT32), column), ("id",))
    field = properties(schema)["v"]
    lake = shape_of(schema).fields[1].type
    form = "number" if is_list(golden.type[0]) else _FORMS[column.type]  # a vector's are finite
    cells = (
        f"`{golden.native}`",
        column.type.value,
        f"array of {form}" if column.dimensions else form,
        f"`{field['type']}`" + (" + `number`: double" if "number" in field.get("fields", {}) else ""),
        f"`{lake}`".replace("element: ", ""),
        _note(golden),
    )
    return "| " + " | ".join(cells) + " |"


def _note(golden: Golden) -> str:
    name, kind, element, element_kind, _ = golden.type
    if element is None:
        if wants_full(name, kind, element=False):
            return _FULL
        bounded = name == "numeric" and golden.type[4] >= 4
        return "NaN is refused in Delta" if bounded else ""
    notes = [_FULL] if wants_full(element, element_kind or kind, element=True) else []
    return "; ".join([*notes, *filter(None, [array_limit(element, element_kind or kind)])])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
