"""A database in another encoding than UTF8: names, keys and values beyond ASCII reach every store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.control.runs import start as runs
from tests.support.mirror import Mirror, mirrored
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

LETTERS = "".join(map(chr, range(0xA1, 0x100)))
"""All that LATIN1 has beyond ASCII."""
TYPE = "CREATE TYPE \"größe\" AS ENUM ('groß', 'klein')"
TABLE = (
    'CREATE TABLE "käse" ("schlüssel" text PRIMARY KEY, "größe" "größe", name text, marken text[],'
    ' doc jsonb, fest char(4), roh bytea, "länge" int GENERATED ALWAYS AS (length("schlüssel")) STORED)'
)
INSERT = 'INSERT INTO "käse" VALUES '
NAMES = ("schlüssel", "größe", "name", "marken", "doc", "fest", "roh", "länge")


def row(key: str, text: str) -> str:
    """Return a row whose every value has letters beyond ASCII."""
    return (
        f"('{key}', 'groß', '{text}', ARRAY['{text}', 'ß', NULL], '{{\"ü\": [\"{text}\", \"\\u00e9\"]}}',"
        f" 'é', convert_to('{text}', 'LATIN1'))"
    )


def told(mirror: Mirror) -> dict[str, dict[str, Any]]:
    """Return key → row, as every store is to have it; documents are read."""
    columns = '"schlüssel", "größe"::text, name, marken, doc, fest, roh, "länge"'
    return {
        found[0]: dict(zip(NAMES, found, strict=True))
        for found in mirror.database.run(f'SELECT {columns} FROM "käse"')
    }


def assert_equal(mirror: Mirror) -> None:
    mirror.settle()
    wanted = told(mirror)
    for name, rows in mirror.stored("käse").items():
        read = [{**one, "doc": json.loads(one["doc"])} for one in rows.values()]
        assert {one["schlüssel"]: one for one in read} == wanted, name


def test_a_database_in_latin1(stack: RunningStack) -> None:
    first = [row(letter, LETTERS) for letter in LETTERS]
    with mirrored(
        stack,
        "latin",
        TYPE,
        TABLE,
        INSERT + ", ".join(first),
        settings={"snapshot_chunk_rows": 20},
        options="ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
    ) as mirror:
        assert_equal(mirror)
        assert len(told(mirror)) == len(LETTERS)
        mirror.database.run(
            "UPDATE \"käse\" SET name = 'Ærø' WHERE \"schlüssel\" = 'ä'",
            'UPDATE "käse" SET "schlüssel" = \'çé\' WHERE "schlüssel" = \'ö\'',
            'DELETE FROM "käse" WHERE "schlüssel" = \'ü\'',
            INSERT + row("ÿÿ", LETTERS * 40),
            "UPDATE \"käse\" SET fest = 'ñ' WHERE \"schlüssel\" = 'ÿÿ'",
        )
        assert_equal(mirror)
        runs.resnapshot(mirror.context, mirror.name)
        assert_equal(mirror)
