"""Postgres alone: rows out by ``COPY``, and its log decoded by pgoutput for nobody."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import psycopg

from headrace.local.postgres import Postgres
from tests.bench.meter import CLIENT, Meter, race, servers
from tests.bench.raw.table import ABOUT, TABLE, change_all, filled
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting
from tests.support.database import Database
from tests.support.stack import running_stack

__all__ = ["BENCHMARKS"]

_ROWS = 200_000
_MANY_ROWS = 1_000_000
_BINARY = "SELECT * FROM pg_logical_slot_peek_binary_changes('{slot}', NULL, NULL, {options})"
_LOOKED_AT = "bench_looked_at"
_OPTIONS = "'proto_version', '1', 'publication_names', 'bench'"


def _measure(setting: Setting) -> Iterator[Result]:
    rows = _MANY_ROWS if setting.full else _ROWS
    with running_stack({"postgres"}) as running:
        meter = Meter(servers(running.home.run))
        with filled(running.endpoints.postgres_dsn, "raw", rows) as database:
            yield from _copy(database, rows, setting.runs, meter)
            yield _decode(database, rows, setting.runs, meter)


def _copy(database: Database, rows: int, runs: int, meter: Meter) -> Iterator[Result]:
    sizes: dict[str, int] = {}

    def way(name: str, binary: bool, ranges: int) -> int:
        with ThreadPoolExecutor(ranges) as pool:
            parts = pool.map(partial(_read, database.dsn, binary, ranges), range(ranges))
            sizes[name] = sum(parts)
        return rows

    kinds = {
        "text": (False, 1),
        "binary": (True, 1),
        "text, two ranges": (False, 2),
        "binary, two ranges": (True, 2),
    }
    ways = {name: partial(way, name, *kind) for name, kind in kinds.items()}
    sides = race(ways, runs, meter)
    bytes_a_row = {name: round(size / rows) for name, size in sizes.items()}
    found = Result(
        "raw.postgres.copy",
        "COPY of a whole table to a client that throws it away",
        "rows/s",
        sides,
        versions=_versions(),
        settings={"rows": rows, "row": ABOUT, "bytes a row": bytes_a_row},
    )
    yield found
    yield replace(
        found, name="raw.postgres.copy_bytes", unit="MiB/s", sides=_in_mib(sides, sizes, rows), settings={}
    )


def _in_mib(sides: Mapping[str, Side], sizes: Mapping[str, int], rows: int) -> dict[str, Side]:
    return {
        name: Side(tuple(round(sample * sizes[name] / rows / 2**20, 1) for sample in side.samples))
        for name, side in sides.items()
    }


def _read(dsn: str, binary: bool, ranges: int, number: int) -> int:
    """Read one part of the table by physical place and return its bytes."""
    form = " (FORMAT binary)" if binary else ""
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_size(%s) / current_setting('block_size')::int", (TABLE,))
        ((pages,),) = cursor.fetchall()
        first, last = pages * number // ranges, pages * (number + 1) // ranges
        # The last range takes what came behind the last page that was counted, too.
        until = f"AND ctid < '({last},0)'" if number + 1 < ranges else ""
        query = f"COPY (SELECT * FROM {TABLE} WHERE ctid >= '({first},0)' {until}) TO STDOUT{form}"
        with cursor.copy(query.encode()) as copy:
            return sum(len(block) for block in copy)


def _decode(database: Database, rows: int, runs: int, meter: Meter) -> Result:
    """Measure how fast the server turns its log into messages for which nobody has a use."""
    database.run("CREATE PUBLICATION bench FOR ALL TABLES")
    program = shutil.which("pg_recvlogical")
    # What a slot has given is gone, so each run has its own, and all of them see the same changes.
    slots = [f"bench_{number}" for number in range(runs + 1 if program else 0)]
    for slot in (*slots, _LOOKED_AT):
        database.run(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    changes = change_all(database, rows)
    end = str(database.value("SELECT pg_current_wal_insert_lsn()"))
    left = iter(slots)

    def inside() -> int:
        peek = _BINARY.format(slot=_LOOKED_AT, options=_OPTIONS)
        ((messages, size),) = database.run(f"SELECT count(*), sum(length(data)) FROM ({peek}) AS told")
        assert messages >= changes, f"{messages} messages of {size} bytes for {changes} changes"
        return changes

    def received() -> int:
        assert program is not None
        command = [program, "-d", database.dsn, "--slot", next(left), "--start", "-f", os.devnull]
        command += ["-o", "proto_version=1", "-o", "publication_names=bench", "--endpos", end, "--no-loop"]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        return changes

    ways = {"inside the server": inside, **({"pg_recvlogical": received} if program else {})}
    sides = race(ways, runs, meter)
    return Result(
        "raw.postgres.decode",
        "a backlog of updates decoded by pgoutput and thrown away",
        "changes/s",
        {
            name: _without_client(side) if name == "inside the server" else side
            for name, side in sides.items()
        },
        versions=_versions() | ({"pg_recvlogical": _version_of(program)} if program else {}),
        settings={
            "changes": changes,
            "transaction": "1,000 rows",
            "pg_recvlogical": "as found on this machine" if program else "not found on this machine",
            "inside the server": "pg_logical_slot_peek_binary_changes, the bytes summed up",
        },
    )


def _without_client(side: Side) -> Side:
    spent = {name: seconds for name, seconds in side.processor_s.items() if name != CLIENT}
    return replace(side, processor_s=spent)


def _version_of(program: str) -> str:
    told = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    return told.split()[2]


def _versions() -> dict[str, str]:
    return {"Postgres": Postgres().version, "psycopg (Python)": psycopg.__version__}


BENCHMARKS = (
    Benchmark(
        "raw.postgres",
        "raw",
        0.7,
        headline=True,
        run=_measure,
        promises=("raw.postgres.copy", "raw.postgres.copy_bytes", "raw.postgres.decode"),
    ),
)
