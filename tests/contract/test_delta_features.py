"""Tables that others have given duties this sink does not know: refused by name, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headrace.model.errors import SinkError
from headrace.model.outcome import APPLIED
from sinks.contract.story import ORDERS, at, expected, order, state
from sinks.delta import DeltaSink

BOTH = pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "hiding"])

LISTED = [
    "checkpointProtection",
    "domainMetadata",
    "icebergCompatV2",
    "inCommitTimestamp",
    "rowTracking",
    "typeWidening",
    "v2Checkpoint",
    "of-tomorrow",
]
PROPERTIES = {
    "appendOnly": {"delta.appendOnly": "true"},
    "changeDataFeed": {"delta.enableChangeDataFeed": "true"},
    "checkConstraints": {"delta.constraints.cheap": "price < 10"},
}
NOTED = {
    "allowColumnDefaults": {"CURRENT_DEFAULT": "'x'"},
    "generatedColumns": {"delta.generationExpression": "'x'"},
    "identityColumns": {"delta.identity.start": 1},
    "invariants": {"delta.invariants": '{"expression": {"expression": "item > 3"}}'},
}


def started(path: Path, *, vectors: bool) -> DeltaSink:
    sink = DeltaSink("lake", DeltaSink.Config(path=path, deletion_vectors=vectors))
    sink.prepare(ORDERS)
    assert sink.apply(ORDERS, [order(n, at(n)) for n in range(5)]) == [APPLIED] * 5
    return sink


def altered(table: Path, properties: dict[str, str], **changes: Any) -> int:
    """Commit, as another writer would, what a table asks from now on; return the version."""
    delta = DeltaTable(str(table))
    about, protocol, version = delta.metadata(), delta.protocol(), int(delta.version()) + 1
    metadata: dict[str, Any] = {
        "id": str(about.id),
        "name": about.name,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": delta.schema().to_json(),
        "partitionColumns": [],
        "configuration": about.configuration | properties,
    }
    listed = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [*(protocol.reader_features or []), *changes.get("readers", [])],
        "writerFeatures": [*(protocol.writer_features or []), *changes.get("writers", [])],
    }
    if noted := changes.get("noted"):
        schema = json.loads(metadata["schemaString"])
        next(field for field in schema["fields"] if field["name"] == "item")["metadata"] = noted
        metadata["schemaString"] = json.dumps(schema)
    lines = [{"commitInfo": {"operation": "SET"}}, {"protocol": listed}, {"metaData": metadata}]
    commit = table / "_delta_log" / f"{version:020d}.json"
    commit.write_text("\n".join(json.dumps(line) for line in lines))
    return version


def refused(sink: DeltaSink, table: Path, feature: str, version: int) -> None:
    for another in (sink, DeltaSink("lake", sink.config)):
        with pytest.raises(SinkError) as caught:
            another.apply(ORDERS, [order(1, at(100)), order(9, at(101))])
        assert caught.value.code == "DELTA_TABLE_FEATURE"
        assert feature in caught.value.message
        assert "headrace resnapshot SOURCE public.orders" in caught.value.hint
    assert not (table / "_delta_log" / f"{version + 1:020d}.json").exists()


@BOTH
@pytest.mark.parametrize("feature", LISTED)
def test_a_feature_that_is_not_known_is_refused_by_name(tmp_path: Path, feature: str, vectors: bool) -> None:
    sink = started(tmp_path, vectors=vectors)
    table = tmp_path / "public" / "orders"
    readers = [feature] if feature in {"typeWidening", "v2Checkpoint", "of-tomorrow"} else []
    refused(sink, table, feature, altered(table, {}, readers=readers, writers=[feature]))


@BOTH
@pytest.mark.parametrize("feature", PROPERTIES)
def test_a_feature_put_to_use_by_a_property_is_refused_until_it_is_not(
    tmp_path: Path, feature: str, vectors: bool
) -> None:
    sink = started(tmp_path, vectors=vectors)
    table = tmp_path / "public" / "orders"
    refused(sink, table, feature, altered(table, PROPERTIES[feature], writers=[feature]))
    if feature != "checkConstraints":
        DeltaTable(str(table)).alter.set_table_properties(dict.fromkeys(PROPERTIES[feature], "false"))
        assert sink.apply(ORDERS, [order(1, at(100))]) == [APPLIED]
        rows = [order(1, at(100)), *(order(n, at(n)) for n in (0, 2, 3, 4))]
        assert state(sink, ORDERS) == expected(ORDERS, rows)


@pytest.mark.parametrize("feature", NOTED)
def test_a_feature_put_to_use_by_a_column_is_refused(tmp_path: Path, feature: str) -> None:
    sink = started(tmp_path, vectors=False)
    table = tmp_path / "public" / "orders"
    writers = [] if feature == "invariants" else [feature]
    refused(sink, table, feature, altered(table, {}, writers=writers, noted=NOTED[feature]))


@BOTH
def test_no_value_is_lost_when_a_column_is_renamed_in_the_lake(tmp_path: Path, vectors: bool) -> None:
    sink = started(tmp_path, vectors=vectors)
    table = tmp_path / "public" / "orders"
    before = {path.name: path.read_bytes() for path in table.glob("*.parquet")}
    delta = DeltaTable(str(table))
    schema = json.loads(delta.schema().to_json())
    for number, field in enumerate(schema["fields"]):
        field["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": field["name"],
        }
        field["name"] = "label" if field["name"] == "item" else field["name"]
    version = altered(
        table, {"delta.columnMapping.mode": "name"}, readers=["columnMapping"], writers=["columnMapping"]
    )
    commit = table / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    actions[-1]["metaData"]["schemaString"] = json.dumps(schema)
    commit.write_text("\n".join(json.dumps(action) for action in actions))
    refused(sink, table, "columnMapping", version)
    with pytest.raises(SinkError) as caught:
        list(sink.scan(ORDERS))
    assert caught.value.code == "DELTA_TABLE_FEATURE"
    assert {path.name: path.read_bytes() for path in table.glob("*.parquet")} == before
