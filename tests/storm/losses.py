"""Faults after which history is missing, and runs and recoveries that are interrupted."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from random import Random

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.config.kafka import KafkaAddress
from headrace.control.kafka import Kafka
from headrace.control.registry import Registry
from headrace.control.runs.repository import active
from headrace.demo.stock import TABLES
from headrace.observe import pidfile
from tests.storm.field import Field
from tests.storm.observer import CHANGING

__all__ = [
    "database_goes_back",
    "recovery_is_interrupted",
    "run_is_aborted",
    "run_rests",
    "slot_is_lost",
    "source_is_recovered",
    "topic_is_trimmed",
]

_DROP_SLOT = """
DO $$ BEGIN
  FOR attempt IN 1..500 LOOP
    PERFORM pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots
    WHERE slot_name = '{slot}' AND active;
    BEGIN
      PERFORM pg_drop_replication_slot('{slot}');
      EXIT;
    EXCEPTION WHEN object_in_use THEN PERFORM pg_sleep(0.01);
    END;
  END LOOP;
END $$
"""


def slot_is_lost(field: Field, rng: Random) -> None:
    """Drop the slot under the connector, as an operator does whose disk is full."""
    field.strikes(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = 'headrace_{field.name}'")
    field.execute(_DROP_SLOT.format(slot=f"headrace_{field.name}"))


def topic_is_trimmed(field: Field, rng: Random) -> None:
    """Remove what one table's topic holds, as a retention does that is too short."""
    topic = f"{field.name}.public.{rng.choice([*TABLES, CHANGING])}"
    admin = AdminClient({**KafkaAddress.parse(field.context.kafka_bootstrap).librdkafka()})
    ((place, (first, end)),) = Kafka(field.context.kafka_bootstrap).ends([topic]).items()
    if first == end:
        raise LookupError("the topic was empty")
    field.observer.disturb_all(until=5.0)
    for future in admin.delete_records([TopicPartition(*place, end)]).values():
        future.result(30)
    field.observer.disturb_all()


def database_goes_back(field: Field, rng: Random) -> None:
    """Restore the whole server from a copy of a few seconds ago."""
    home = field.running.home
    data, kept = home.data("postgres"), home.data("postgres").with_name("postgres.kept")

    def stopped() -> None:
        pidfile.stop(home.pidfile("postgres"), grace=30.0, request=signal.SIGINT)

    try:
        stopped()
        subprocess.run(["cp", "-a", str(data), str(kept)], check=True)
        field.headrace("up")
        time.sleep(rng.uniform(1.0, 6.0))
        field.observer.disturb_all(until=60.0)
        stopped()
        shutil.rmtree(data)
        kept.rename(data)
    finally:
        field.headrace("up")
        shutil.rmtree(kept, ignore_errors=True)
    # What was read may be there again under the same transaction's number, and be younger.
    field.observer.forget()
    field.observer.disturb_all()


def run_is_aborted(field: Field, rng: Random) -> None:
    """Begin a resnapshot, and give it up while it is under way."""
    _begin_run(field, rng)
    time.sleep(rng.uniform(0.5, 3.0))
    field.does("resnapshot", "abort", _newest_run(field))


def run_rests(field: Field, rng: Random) -> None:
    """Begin a resnapshot; pause it, and let it go on."""
    _begin_run(field, rng)
    time.sleep(rng.uniform(0.5, 2.0))
    run = _newest_run(field)
    field.does("resnapshot", "pause", run)
    time.sleep(rng.uniform(0.5, 3.0))
    field.does("resnapshot", "resume", run)


def source_is_recovered(field: Field, rng: Random) -> None:
    """Begin a new life of the source, though nothing may be wrong with it."""
    field.does("recover", field.name)


def recovery_is_interrupted(field: Field, rng: Random) -> None:
    """Kill a recovery while it is under way."""
    field.headrace("recover", field.name, wait=None)
    time.sleep(rng.uniform(1.0, 10.0))
    field.commands[-1].kill()


def _begin_run(field: Field, rng: Random) -> None:
    tables = rng.sample([*TABLES, CHANGING], rng.randint(1, 3))
    field.does("resnapshot", field.name, *(f"public.{table}" for table in tables), "--background")


def _newest_run(field: Field) -> str:
    under_way = active(Registry(field.context.registry), field.name)
    if not under_way:
        raise LookupError("the run was over")
    return under_way[-1].id
