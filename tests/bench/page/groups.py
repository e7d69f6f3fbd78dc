"""The sections of the page: what each group of results is called, and what a reader has to know of it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["NOTES", "TITLES"]

TITLES: Mapping[str, str] = {
    "apply": "Applying, against the raw clients of the stores",
    "drain": "Draining a backlog",
    "peer": "Beside others",
    "latency": "From commit to visible",
    "large": "Large transactions",
    "scale": "With the size of what is mirrored",
    "raw": "What the parts can do alone",
    "demo": "The demo",
}
"""Group → heading, in the order of the page; others follow."""

_APPLY = """\
A shop's products of twelve columns (520 to 740 bytes as a document), all new, then all changed, then a tenth deleted, in
batches as the engine hands them over. *Guarded* is the store's own client with ready-made payloads and a comparison of
versions, *plain* the same without: what the sink adds is what differs.

| | guarded | plain |
| --- | --- | --- |
| Elasticsearch | `_bulk` of 2,000 ready-made operations, external versions | the same without versions |
| Redis | one small script call for a group of ready-made values, pipelined | pipelines of `SET`, or `HSET` and `HDEL` |
| Delta | `deltalake`'s merge of a ready-made Arrow table, versions compared | append of new rows; merge without versions |

Only the sinks remember deletes and check what came before; only the lake sink forces its files to the disk."""

_LATENCY = """\
Markers, some three a second, are written to one table, and each store is asked for them again and again: Elasticsearch by id
every 20 ms, Redis every 10 ms, the newest version of the Delta table every 50 ms. All three sinks run in one driver. *light*
is nothing but the markers, *steady* 20 row changes a second over eight tables, *half* half of what all three together kept up
with just before. A marker that was never seen fails the result."""

_RAW = """\
The same machine, each part with as little around it as can be: the ceilings that no pipeline made of them gets through."""

_SCALE = """\
Batches of 2,000 changes; the ratio says how fast a change of the large table is beside one of the small table."""

NOTES: Mapping[str, str] = {"apply": _APPLY, "latency": _LATENCY, "raw": _RAW, "scale": _SCALE}
"""Group → what stands under the heading."""
