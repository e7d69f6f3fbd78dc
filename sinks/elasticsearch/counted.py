"""What the primaries of indexes tell: what they have counted, and whose history they go on with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sinks.elasticsearch.client import Client, path

__all__ = ["Counted", "Counts", "counted", "lines"]

_LINE_BYTES = 3_000
"""Most bytes of names in one request: its first line may have 4 KiB."""
_WANTED = (
    "routing.state",
    "routing.primary",
    "routing.node",
    "indexing.delete_total",
    "indexing.index_total",
    "seq_no.max_seq_no",
    "commit.user_data.history_uuid",
)
_OPEN = ("STARTED", "RELOCATING")

Counts = Mapping[str, int]
"""Copy of a shard → how many operations of a kind it has counted since it was opened."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What the primary of each shard of an index tells.

    Args:
        deletes: How many.
        written: How many documents.
        last: The last operation.
        histories: Number of the shard → what a shard that is made empty, or of an old copy, has another of.
    """

    deletes: Counts
    written: Counts
    last: Counts
    histories: Mapping[str, str]


def counted(client: Client, indexes: Collection[str]) -> dict[str, Counted]:
    """Return index → what its primaries tell.

    An index is left out while one of them is being opened or closed. It tells a part of that only, or has
    not got its last operations back.
    """
    shard = "indices.*.shards.*"
    wanted = ",".join(f"{shard}.{one}" for one in _WANTED)
    asked = f"level=shards&ignore_unavailable=true&filter_path={wanted}"
    found: dict[str, Counted] = {}
    for named in lines(indexes):
        reply = client.request("GET", f"{named}/_stats/indexing?{asked}")
        for index, about in reply.json().get("indices", {}).items():
            told = _counted(about["shards"])
            if told is not None:
                found[index] = told
    return found


def _counted(shards: Mapping[str, Collection[Mapping[str, Any]]]) -> Counted | None:
    primaries = {
        f"{number} {copy['routing']['node']}": copy
        for number, copies in shards.items()
        for copy in copies
        if copy["routing"]["primary"]
    }
    if not all(copy["routing"]["state"] in _OPEN for copy in primaries.values()):
        return None
    try:
        return Counted(
            {name: told["indexing"]["delete_total"] for name, told in primaries.items()},
            {name: told["indexing"]["index_total"] for name, told in primaries.items()},
            {name: told["seq_no"]["max_seq_no"] for name, told in primaries.items()},
            {
                name.partition(" ")[0]: told["commit"]["user_data"]["history_uuid"]
                for name, told in primaries.items()
            },
        )
    except KeyError:
        return None


def lines(names: Collection[str]) -> Iterator[str]:
    """Yield addresses that name some at a time."""
    line = ""
    for name in map(path, names):
        if line and len(line) + len(name) > _LINE_BYTES:
            yield line
            line = ""
        line = f"{line},{name.removeprefix('/')}" if line else name
    if line:
        yield line
