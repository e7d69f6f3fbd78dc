"""Spark as the other writer of a table of ours: what leaves its rows alone is survived, the rest is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.model.errors import SinkError
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from sinks.contract.story import ORDERS, at, delete, order
from sinks.delta import DeltaSink
from tests.support.duck_lake import duck_rows
from tests.support.lake_story import Story, rebuild, told
from tests.support.spark_lake import SparkLake

pytestmark = [pytest.mark.stack, pytest.mark.deep, pytest.mark.timeout(400)]

BOTH = pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "hiding"])
AT_ONCE = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 seconds')"
CHANGES = {
    "UPDATE": "UPDATE {t} SET item = 'theirs' WHERE id = 5",
    "DELETE": "DELETE FROM {t} WHERE id = 5",
    "MERGE": "MERGE INTO {t} t USING (SELECT 5 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "INSERT": "INSERT INTO {t} SELECT * FROM {t} WHERE id = 5",
    "OVERWRITE": "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id > 5",
    "TRUNCATE": "DELETE FROM {t}",
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkLake]:
    with SparkLake(tmp_path_factory.mktemp("spark")) as spark:
        yield spark


def say(spark: SparkLake, story: Story, text: str) -> list[list[str]]:
    return spark.sql(text.format(t=f"delta.`{story.path}`"))


def everybody_agrees(spark: SparkLake, story: Story) -> None:
    story.is_whole()
    columns = "_headrace_key, _headrace_version, item"
    by_duck = sorted([*map(str, row)] for row in duck_rows(story.path, columns))
    assert sorted(say(spark, story, f"SELECT {columns} FROM {{t}}")) == by_duck
    newest = {change.key: change for change in story.changes}.values()
    live = [change for change in newest if change.op.value != "delete"]
    assert [row[:2] for row in by_duck] == sorted([c.key.id, str(c.position.version)] for c in live)


def goes_on(spark: SparkLake, story: Story) -> None:
    number = 100 + story.offset()
    story.batch(order(1, at(number)), delete(ORDERS, 3, at(number + 1)), order(number, at(number + 2)))
    everybody_agrees(spark, story)
    story.batch(order(3, at(number + 3)))


@BOTH
def test_what_spark_tidies_up_is_survived(tmp_path: Path, spark: SparkLake, vectors: bool) -> None:
    """OPTIMIZE, REORG, VACUUM of all that is old, ANALYZE, properties, a comment; running and restarted."""
    story = told(vectors, tmp_path)
    tidy = [
        "OPTIMIZE {t}",
        "REORG TABLE {t} APPLY (PURGE)",
        AT_ONCE,
        "VACUUM {t} RETAIN 0 HOURS",
        "COMMENT ON TABLE {t} IS 'the orders'",
        "ALTER TABLE {t} SET TBLPROPERTIES ('steward' = 'them')",
    ]
    for restarted in (False, True):
        for text in tidy:
            say(spark, story, text)
            if restarted:
                story.restart()
            assert story.stored == story.offset() - 1, text
            goes_on(spark, story)
        while story.sink.maintain(60):
            pass
        everybody_agrees(spark, story)


@BOTH
@pytest.mark.parametrize("operation", CHANGES)
def test_rows_that_spark_changes_are_told_until_the_table_is_built_anew(
    tmp_path: Path, spark: SparkLake, vectors: bool, operation: str
) -> None:
    story = told(vectors, tmp_path)
    say(spark, story, CHANGES[operation])
    # What it tidies up afterwards hides nothing.
    say(spark, story, "OPTIMIZE {t}")
    after = DeltaTable(story.path).version()
    for restarted in (False, True):
        if restarted:
            story.restart()
        assert story.stored == -1
        with pytest.raises(SinkError) as caught:
            story.sink.apply(ORDERS, [order(1, at(99))])
        assert caught.value.code == "DELTA_FOREIGN_COMMIT"
        assert caught.value.table == ORDERS.table
        assert "Spark" in caught.value.message
        assert caught.value.hint == "headrace resnapshot SOURCE public.orders"
    assert DeltaTable(story.path).version() == after, "nothing was written over it"
    rebuild(story)
    everybody_agrees(spark, story)
    goes_on(spark, story)


@BOTH
def test_what_came_after_a_restore_by_spark_is_brought_forward(
    tmp_path: Path, spark: SparkLake, vectors: bool
) -> None:
    story = told(vectors, tmp_path)
    version = DeltaTable(story.path).version()
    say(spark, story, f"RESTORE TABLE {{t}} TO VERSION AS OF {version - 2}")
    assert story.stored == 19
    story.bring_forward()
    everybody_agrees(spark, story)
    # A stranger's change that is taken back leaves nothing behind.
    version = DeltaTable(story.path).version()
    say(spark, story, CHANGES["UPDATE"])
    assert story.stored == -1
    say(spark, story, f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")
    assert story.stored == story.offset() - 1
    goes_on(spark, story)


@BOTH
def test_a_feature_that_spark_turns_on_is_refused_by_name(
    tmp_path: Path, spark: SparkLake, vectors: bool
) -> None:
    story = told(vectors, tmp_path)
    say(spark, story, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    with pytest.raises(SinkError) as caught:
        story.sink.apply(ORDERS, [order(1, at(99))])
    assert caught.value.code == "DELTA_TABLE_FEATURE"
    assert "changeDataFeed" in caught.value.message
    say(spark, story, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')")
    goes_on(spark, story)


def test_names_with_which_spark_alters_no_table_are_told(tmp_path: Path, spark: SparkLake) -> None:
    sink = DeltaSink("lake", DeltaSink.Config(path=tmp_path))
    for number, character in enumerate(" ,;{}()\n\t=-.:'~ü"):
        names = (f"a{character}b", "id")
        columns = tuple(Column(name, LogicalType.INT32) for name in names)
        schema = TableSchema(TableId("public", f"t{number}"), columns, ("id",))
        told = [found.code for found in sink.check([schema]) if found.table == schema.table]
        sink.prepare(schema)
        table = f"delta.`{tmp_path / 'public' / f't{number}'}`"
        assert spark.sql(f"SELECT `{names[0]}`, id FROM {table}") == []
        refusal = spark.refusal(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
        assert told == (["DELTA_COLUMN_NAME"] if refusal else []), (names, refusal)
        assert not refusal or "INVALID_CHARACTERS_IN_COLUMN_NAME" in refusal
