"""The faults a storm is made of. Each leaves the servers startable and says what it does to a store."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from deltalake import DeltaTable
from redis import Redis

from headrace.control.runner import engine_state
from headrace.demo.stock import TABLES
from headrace.observe import pidfile
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.client import Client, path
from tests.storm.field import Field
from tests.storm.losses import (
    database_goes_back,
    recovery_is_interrupted,
    run_is_aborted,
    run_rests,
    slot_is_lost,
    source_is_recovered,
    topic_is_trimmed,
)
from tests.storm.observer import CHANGING

__all__ = ["ACTIONS", "Action"]

Run = Callable[[Field, Random], None]
_PAUSE_S = (0.3, 2.5)
_ONLY_GROW = ("categories", "customers")


@dataclass(frozen=True, slots=True)
class Action:
    """A fault.

    Args:
        weight: How often it is drawn.
        run: Does it.
    """

    weight: int
    run: Run


def _kill(field: Field, name: str) -> None:
    pid = pidfile.alive(field.running.home.pidfile(name))
    if pid is None:
        raise LookupError(f"{name} did not run")
    os.kill(pid, signal.SIGKILL)


def _kill_server(name: str) -> Run:
    def run(field: Field, rng: Random) -> None:
        try:
            _kill(field, name)
            time.sleep(rng.uniform(*_PAUSE_S))
        finally:
            field.headrace("up")

    return run


def _kill_driver(field: Field, rng: Random) -> None:
    os.kill(int(engine_state(field.context.progress)["pid"]), signal.SIGKILL)


def _driver_sleeps(field: Field, rng: Random) -> None:
    group = os.getpgid(int(engine_state(field.context.progress)["pid"]))
    os.killpg(group, signal.SIGSTOP)
    try:
        time.sleep(rng.uniform(2.0, 6.0))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGCONT)


def _kill_all(field: Field, rng: Random) -> None:
    driver = engine_state(field.context.progress).get("pid")
    names = [server.name for server in field.running.stack.status()]
    rng.shuffle(names)
    for name in names:
        with contextlib.suppress(LookupError):
            _kill(field, name)
    with contextlib.suppress(ProcessLookupError, TypeError):
        os.kill(int(driver or 0), signal.SIGKILL)
    field.headrace("up")


def _cut_the_stream(field: Field, rng: Random) -> None:
    field.strikes("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")


def _flush_cache(field: Field, rng: Random) -> None:
    redis: Any = Redis.from_url(field.running.redis_admin_url)
    field.observer.disturb(field.sink("redis"), until=1.0)
    redis.flushall()
    field.observer.disturb(field.sink("redis"))


_DUMP = """
local told = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  told[#told + 1] = key
  told[#told + 1] = redis.call('DUMP', key)
end
return told
"""


def _cache_goes_back(field: Field, rng: Random) -> None:
    redis: Any = Redis.from_url(field.running.redis_admin_url)
    # At one moment, as a backup of Redis is: else its progress would be ahead of its rows.
    dumped = redis.eval(_DUMP, 0, f"{field.name}:*")
    kept = dict(zip(dumped[::2], dumped[1::2], strict=True))
    time.sleep(rng.uniform(1.0, 5.0))
    field.observer.disturb(field.sink("redis"), until=5.0)
    with redis.pipeline(transaction=True) as at_once:
        for key in redis.scan_iter(match=f"{field.name}:*", count=1000):
            at_once.unlink(key)
        for key, value in kept.items():
            at_once.restore(key, 0, value, replace=True)
        at_once.execute()
    field.observer.disturb(field.sink("redis"))


def _keys_are_deleted(field: Field, rng: Random) -> None:
    redis: Any = Redis.from_url(field.running.redis_admin_url)
    table = rng.choice([*TABLES, CHANGING])
    keys = sorted(redis.scan_iter(match=f"{field.name}:{table}:*", count=1000))
    field.observer.disturb(field.sink("redis"), until=5.0)
    chosen = rng.sample(keys, min(rng.randint(1, 5), len(keys)))
    if not chosen or not redis.unlink(*chosen):
        raise LookupError("they were gone")
    field.observer.disturb(field.sink("redis"))


def _documents_are_deleted(field: Field, rng: Random) -> None:
    """Of a table from which nobody else deletes: a few beside deletes of ours are not noticed."""
    sink = field.sink("elasticsearch")
    alias = field.facts(sink, rng.choice(_ONLY_GROW))["alias"]
    client = Client(ElasticsearchSink.Config(url=field.running.endpoints.elasticsearch_url))
    try:
        found = client.request("GET", path(alias, "_search") + "?size=200&_source=false", None).json()
        ids = sorted(hit["_id"] for hit in found["hits"]["hits"])
        if not ids:
            raise LookupError("the index was empty")
        field.observer.disturb(sink, until=5.0)
        for one in rng.sample(ids, min(rng.randint(1, 5), len(ids))):
            client.request("DELETE", path(alias, "_doc", one), None)
        field.observer.disturb(sink)
    finally:
        client.close()


def _index_is_deleted(field: Field, rng: Random) -> None:
    sink = field.sink("elasticsearch")
    alias = field.facts(sink, rng.choice(TABLES))["alias"]
    client = Client(ElasticsearchSink.Config(url=field.running.endpoints.elasticsearch_url))
    try:
        names = client.request("GET", path(alias), None).json()
        if not names or "error" in names:
            raise LookupError("the index was gone")
        field.observer.disturb(sink, until=5.0)
        for name in names:
            client.request("DELETE", path(name), None)
        field.observer.disturb(sink)
    finally:
        client.close()


def _lake_table(field: Field, rng: Random) -> Path:
    return Path(field.facts(field.sink("delta"), rng.choice(TABLES))["path"])


def _lake_is_restored(field: Field, rng: Random) -> None:
    place = _lake_table(field, rng)
    table = DeltaTable(str(place))
    if not table.version():
        raise LookupError("the table had one version only")
    field.observer.disturb(field.sink("delta"), until=5.0)
    table.restore(max(0, table.version() - rng.randint(1, 3)))
    field.observer.disturb(field.sink("delta"))


def _lake_goes_back(field: Field, rng: Random) -> None:
    place = _lake_table(field, rng)
    kept = place.with_name(place.name + ".kept")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(place, kept)
    time.sleep(rng.uniform(1.0, 4.0))
    field.observer.disturb(field.sink("delta"), until=5.0)
    gone = place.with_name(place.name + ".gone")
    place.rename(gone)
    kept.rename(place)
    shutil.rmtree(gone)
    field.observer.disturb(field.sink("delta"))


def _lake_table_is_removed(field: Field, rng: Random) -> None:
    place = _lake_table(field, rng)
    field.observer.disturb(field.sink("delta"), until=5.0)
    gone = place.with_name(place.name + ".gone")
    place.rename(gone)
    shutil.rmtree(gone)
    field.observer.disturb(field.sink("delta"))


def _column_is_added(field: Field, rng: Random) -> None:
    number = rng.randrange(10**6)
    field.execute(
        f"ALTER TABLE {CHANGING} ADD COLUMN c{number} integer NOT NULL DEFAULT {number};"
        f" UPDATE {CHANGING} SET v = v || '!' WHERE id % 7 = 0"
    )


def _column_is_replaced(field: Field, rng: Random) -> None:
    field.execute(f"ALTER TABLE {CHANGING} DROP COLUMN v, ADD COLUMN v text NOT NULL DEFAULT 'gone'")


def _table_is_rewritten(field: Field, rng: Random) -> None:
    field.execute(f"ALTER TABLE {CHANGING} ALTER COLUMN amount TYPE numeric(14, 2) USING amount + 1")


def _column_is_widened(field: Field, rng: Random) -> None:
    field.execute(f"ALTER TABLE {CHANGING} ALTER COLUMN size TYPE bigint")


def _enum_is_renamed(field: Field, rng: Random) -> None:
    field.execute(f"ALTER TYPE changing_kind RENAME VALUE 'c' TO 'c{rng.randrange(10**6)}'")


def _deletes_are_not_published(field: Field, rng: Random) -> None:
    name = f"headrace_{field.name}"
    field.execute(f"ALTER PUBLICATION {name} SET (publish = 'insert, update, truncate')")
    try:
        field.strikes(f"DELETE FROM {CHANGING} WHERE id % 11 = {rng.randrange(11)}")
        time.sleep(rng.uniform(*_PAUSE_S))
    finally:
        field.execute(f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')")


def _changing_rows_come_and_go(field: Field, rng: Random) -> None:
    first = 1000 + rng.randrange(10**6)
    field.execute(
        f"INSERT INTO {CHANGING} (id, kind, amount, v, size) SELECT i, 'b', i, 'new', 1"
        f" FROM generate_series({first}, {first + 20}) i ON CONFLICT DO NOTHING"
    )
    field.strikes(f"DELETE FROM {CHANGING} WHERE id % 13 = {rng.randrange(13)}")


def _resnapshot(field: Field, rng: Random) -> None:
    tables = rng.sample([*TABLES, CHANGING], rng.randint(1, 3))
    field.headrace("resnapshot", field.name, *(f"public.{table}" for table in tables), wait=None)


def _resnapshot_client_dies(field: Field, rng: Random) -> None:
    _resnapshot(field, rng)
    time.sleep(rng.uniform(0.5, 3.0))
    field.commands[-1].kill()


def _sink_rests(field: Field, rng: Random) -> None:
    name = rng.choice(sorted(field.sinks))
    field.does("sink", "pause", name)
    time.sleep(rng.uniform(*_PAUSE_S))
    field.does("sink", "resume", name)


def _source_rests(field: Field, rng: Random) -> None:
    field.does("source", "pause", field.name)
    time.sleep(rng.uniform(*_PAUSE_S))
    field.does("source", "resume", field.name)


def _sink_comes_and_goes(field: Field, rng: Random) -> None:
    """Fill one more sink from the whole source under writers, and remove it with what it holds."""
    name, kind = f"{field.name}_guest{rng.randrange(10**6)}", rng.choice(sorted(field.sinks.values()))
    away = {"elasticsearch": "--prefix", "redis": "--key-prefix", "delta": "--path"}[kind]
    place = {"delta": f"{field.running.endpoints.lake_path}/{name}"}.get(kind, f"{name}-")
    try:
        field.does("sink", "add", name, "--kind", kind, "--source", field.name, away, place)
        field.sinks[name] = kind  # from here on it is looked at, as the others are
        time.sleep(rng.uniform(5.0, 15.0))
    finally:
        field.observer.disturb(name, until=600.0)
        field.sinks.pop(name, None)
        field.does("sink", "remove", name, "--purge", "--yes")


ACTIONS: Mapping[str, Action] = {
    "kill driver": Action(4, _kill_driver),
    "driver sleeps": Action(2, _driver_sleeps),
    **{f"kill {name}": Action(2, _kill_server(name)) for name in ("redis", "connect", "postgres")},
    **{f"kill {name}": Action(1, _kill_server(name)) for name in ("elasticsearch", "kafka", "engine")},
    "power fails": Action(1, _kill_all),
    "stream is cut": Action(3, _cut_the_stream),
    "cache is flushed": Action(2, _flush_cache),
    "cache goes back": Action(2, _cache_goes_back),
    "keys are deleted": Action(2, _keys_are_deleted),
    "documents are deleted": Action(2, _documents_are_deleted),
    "index is deleted": Action(2, _index_is_deleted),
    "lake table is restored": Action(2, _lake_is_restored),
    "lake table goes back": Action(2, _lake_goes_back),
    "lake table is removed": Action(1, _lake_table_is_removed),
    "column is added": Action(2, _column_is_added),
    "column is replaced": Action(1, _column_is_replaced),
    "table is rewritten": Action(1, _table_is_rewritten),
    "column is widened": Action(1, _column_is_widened),
    "enum is renamed": Action(1, _enum_is_renamed),
    "deletes are not published": Action(1, _deletes_are_not_published),
    "rows come and go": Action(3, _changing_rows_come_and_go),
    "resnapshot": Action(3, _resnapshot),
    "resnapshot, client dies": Action(2, _resnapshot_client_dies),
    "sink rests": Action(2, _sink_rests),
    "source rests": Action(1, _source_rests),
    "sink comes and goes": Action(2, _sink_comes_and_goes),
    "slot is lost": Action(1, slot_is_lost),
    "topic is trimmed": Action(1, topic_is_trimmed),
    "database goes back": Action(1, database_goes_back),
    "run is aborted": Action(2, run_is_aborted),
    "run rests": Action(2, run_rests),
    "source is recovered": Action(1, source_is_recovered),
    "recovery is interrupted": Action(1, recovery_is_interrupted),
}
