"""Which tables a template of the cluster is told of: each that it takes, or none where all are meant."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.model.schema import TableId
from sinks.elasticsearch.client import Client
from sinks.elasticsearch.templates import template_findings

ONE, TWO, THREE = (TableId("public", name) for name in ("one", "two", "three"))
INDEXES: dict[str, TableId | None] = {
    **{f"shop-public-{table.name}-{end}": table for table in (ONE, TWO, THREE) for end in ("g1", "deleted1")},
    "shop-headrace_progress-1": None,
}


def found(pattern: str, **body: Any) -> list[tuple[str, TableId | None]]:
    """Return code and table of what is found of one template, of the new kind unless it has a body."""

    def request(method: str, target: str, **_: object) -> Any:
        template = {"index_patterns": [pattern], "priority": 500, "data_stream": {}}
        new = [] if body else [{"name": "theirs", "index_template": template}]
        old = {"theirs": {"index_patterns": [pattern], **body}} if body else {}
        told = {"index_templates": new} if target == "/_index_template" else old
        return SimpleNamespace(status=200, json=lambda: told)

    told = template_findings(cast("Client", SimpleNamespace(request=request)), INDEXES, 3)
    assert all("theirs" in one.message and pattern in one.hint for one in told)
    return [(one.code, one.table) for one in told]


@pytest.mark.parametrize(
    ("pattern", "tables"),
    [
        ("shop-public-one-*", [ONE]),
        ("shop-public-t*", [TWO, THREE]),
        ("shop-public-*", [None]),
        ("shop-*", [None]),
        ("*progress*", [None]),
        ("other-*", []),
    ],
)
def test_a_template_is_told_of_each_table_that_it_takes(pattern: str, tables: list[TableId | None]) -> None:
    """One that takes the sink's own indexes, or those of every table, leaves nothing to mirror."""
    assert found(pattern) == [("ES_TEMPLATE_DATA_STREAM", table) for table in tables]
    cut = found(pattern, settings={"index": {"final_pipeline": "p"}})
    assert cut == [("ES_TEMPLATE_CHANGES", table) for table in tables]
