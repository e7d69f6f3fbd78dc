"""A query's checkpoint is lost, of yesterday, or another's: what is missing is read again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.config.kafka import KafkaAddress
from headrace.control import lag
from headrace.control.kafka import Kafka
from tests.support.mirror import KINDS, Mirror, mirrored
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import stays, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def mirror(stack: RunningStack) -> Iterator[Mirror]:
    with mirrored(
        stack,
        "points",
        "CREATE TABLE things (id int PRIMARY KEY, name text)",
        "INSERT INTO things SELECT i, 'n' || i FROM generate_series(1, 300) i",
    ) as made:
        made.settle()
        yield made


def checkpoint(mirror: Mirror, short: str) -> Path:
    found = mirror.context.checkpoints / f"points{short}"
    assert (found / "commits").is_dir()
    return found


def wanted(mirror: Mirror) -> dict[str, dict[str, object]]:
    return {str(key): {"id": key, "name": name} for key, name in mirror.database.run("TABLE things")}


def test_a_query_that_lost_its_checkpoint_skips_nothing(mirror: Mirror, tmp_path: Path) -> None:
    mirror.pause(*KINDS)
    shutil.copytree(checkpoint(mirror, "lake"), tmp_path / "of_yesterday")
    mirror.resume(*KINDS)
    mirror.database.run(
        "UPDATE things SET name = 'today' WHERE id <= 100",
        "DELETE FROM things WHERE id BETWEEN 101 AND 120",
        "UPDATE things SET id = id + 1000 WHERE id BETWEEN 121 AND 130",
    )
    mirror.settle()

    # What comes now one sink applies, and the others do not.
    mirror.pause(*KINDS)
    mirror.database.run("UPDATE things SET name = name || '!'", "INSERT INTO things VALUES (5000, 'new')")
    mirror.resume("cache")
    until(lambda: mirror.stored("things")["pointscache"] == wanted(mirror))
    mirror.pause("cache")

    search, cache, lake = (checkpoint(mirror, short) for short in ("search", "cache", "lake"))
    for place, instead in ((search, cache), (lake, tmp_path / "of_yesterday")):
        shutil.rmtree(place)
        shutil.copytree(instead, place)
    shutil.rmtree(cache)
    mirror.resume(*KINDS)
    mirror.database.run("UPDATE things SET name = 'last' WHERE id = 1", "DELETE FROM things WHERE id = 2")
    mirror.settle()
    assert mirror.letters == []
    for name, rows in mirror.stored("things").items():
        assert rows == wanted(mirror), name


@pytest.mark.parametrize("content", ["", "null", '{"things": {"1": [1'], ids=["empty", "null", "cut"])
def test_a_note_beside_a_checkpoint_is_damaged_and_all_is_applied_anew(mirror: Mirror, content: str) -> None:
    """A sink forgets nothing of what it noted, and what is damaged at one ends no other."""
    mirror.pause(*KINDS)
    mirror.database.run("UPDATE things SET name = name || '.' WHERE id > 200")
    for short, note in (("search", "troubles.json"), ("cache", "held.json"), ("lake", "targets.json")):
        (checkpoint(mirror, short) / note).write_text(content)
    mirror.resume(*KINDS)
    mirror.settle()
    aside = list(mirror.context.checkpoints.glob(".*.damaged-*"))
    assert sorted(path.name.partition(".damaged")[0] for path in aside) == [
        f".points{short}" for short in sorted(KINDS)
    ]
    for path in aside:
        shutil.rmtree(path)
    assert mirror.letters == []
    for name, rows in mirror.stored("things").items():
        assert rows == wanted(mirror), name


def test_a_query_that_lost_its_checkpoint_tells_what_kafka_has_lost_meanwhile(mirror: Mirror) -> None:
    """It knew up to where it had applied, and which rows were behind; Kafka has trimmed the rest."""
    mirror.settle()
    mirror.pause("cache")
    mirror.database.run("UPDATE things SET name = 'trimmed' WHERE id <= 50")
    others = ("pointssearch", "pointslake")
    until(lambda: all(mirror.stored("things")[name] == wanted(mirror) for name in others))
    topic, kafka = "points.public.things", Kafka(mirror.context.kafka_bootstrap)
    admin = AdminClient({**KafkaAddress.parse(mirror.context.kafka_bootstrap).librdkafka()})
    end = kafka.ends([topic])[topic, 0][1]
    for future in admin.delete_records([TopicPartition(topic, 0, end)]).values():
        future.result()
    shutil.rmtree(checkpoint(mirror, "cache"))
    mirror.resume("cache")
    mirror.database.run("INSERT INTO things VALUES (6000, 'behind the gap')")

    def found() -> lag.TableLag:
        return next(one for one in lag.measure(mirror.context).tables if one.sink == "pointscache")

    until(lambda: found().state is lag.State.RESYNC_REQUIRED, why=found)
    # By then the batch has moved what is settled past the hole.
    stays(lambda: found().state is lag.State.RESYNC_REQUIRED, 10, why=found)
    carry_out(found().remedy, mirror.stack.home.root, mirror.database.run)
    mirror.settle()
    for name, rows in mirror.stored("things").items():
        assert rows == wanted(mirror), name
