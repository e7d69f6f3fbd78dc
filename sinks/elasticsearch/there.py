"""What has the names of a sink's indexes already: something else, or an index with other fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.model.finding import Finding
from headrace.model.schema import TableId
from sinks.elasticsearch.client import Client, path

__all__ = ["name_taken", "there_findings"]


def name_taken(alias: str) -> tuple[str, str]:
    """Return sentence and hint for an index that has the name of an alias of ours."""
    return (
        f"There is an index named {alias}, where the sink needs an alias of that name.",
        "Give the sink another prefix.",
    )


def there_findings(
    client: Client, table: TableId, alias: str, wanted: Mapping[str, Any], stones: str
) -> Iterator[Finding]:
    """Yield what stands in the way of a table's index.

    Args:
        client: Of the cluster.
        table: The table.
        alias: Of its index.
        wanted: The fields that the index is to have.
        stones: Alias of its tombstones.
    """
    told = client.request("GET", path(f"{alias},{stones}") + "?ignore_unavailable=true", see=(404,))
    indexes: Mapping[str, Mapping[str, Any]] = told.json() if told.status == 200 else {}
    for name, about in indexes.items():
        if name in (alias, stones):
            yield Finding.error("ES_NAME_TAKEN", *name_taken(name), table)
        elif alias in about["aliases"]:
            yield from _retyped(table, name, about["mappings"].get("properties", {}), wanted)


def _retyped(
    table: TableId, index: str, there: Mapping[str, Any], wanted: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yield an error when fields have another type; a field's type cannot be changed."""
    types = {
        name: (there[name].get("type"), field.get("type")) for name, field in wanted.items() if name in there
    }
    others = [
        f"{name} is {old or 'object'} and would have to become {new or 'object'}"
        for name, (old, new) in types.items()
        if old != new
    ]
    if others:
        yield Finding.error(
            "ES_MAPPING_CONFLICT",
            f"The index {index} cannot take the columns of {table}: {'; '.join(others)}.",
            "Give the sink another prefix; or delete the index, when nobody needs it any more.",
            table,
        )
