"""What the figures are measured against, the most important first, and what is to blame for a miss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tests.bench.results import Result, Spread

__all__ = ["AIMS", "Aim", "Verdict", "judge"]

Verdict = Literal["reached", "missed", "FAILED", "not measured"]


@dataclass(frozen=True, slots=True)
class Aim:
    """A promise about one figure.

    Args:
        what: The promise, as the page tells it.
        result: Name of the result that decides.
        side: Whose figure.
        over: The side it is compared with; None where the figure itself decides.
        how: ``ratio``: how much better ``side`` is than ``over``; ``figure``: the figure itself;
            ``gap``: how much larger it is than that of ``over``.
        least: What it must not be below.
        most: What it must not be above.
        blame: What the profile blames where the aim is missed, for the reader.
    """

    what: str
    result: str
    side: str = "headrace"
    over: str | None = None
    how: Literal["ratio", "figure", "gap"] = "ratio"
    least: float | None = None
    most: float | None = None
    blame: str = ""

    def found(self, result: Result) -> Spread | None:
        """Return the figure that decides; None when a side was not measured."""
        wanted = {self.side} if self.over is None else {self.side, self.over}
        if not wanted <= result.sides.keys() or not all(result.sides[name].samples for name in wanted):
            return None
        if self.how == "figure" or self.over is None:
            return result.sides[self.side].spread
        own, other = result.sides[self.side].samples, result.sides[self.over].samples
        if len(own) != len(other):
            return None
        if self.how == "ratio":
            return result.ratio(self.side, self.over)
        return Spread.of([a - b for a, b in zip(own, other, strict=True)])

    def reached(self, figure: float) -> bool:
        """Return whether a figure is as good as promised."""
        return (self.least is None or figure >= self.least) and (self.most is None or figure <= self.most)


def judge(aim: Aim, results: Mapping[str, Result]) -> tuple[Verdict, Spread | None]:
    """Return whether an aim is reached, by the median of its runs, and what was found."""
    result = results.get(aim.result)
    if result is None:
        return "not measured", None
    if not result.counts:
        return "FAILED", None
    found = aim.found(result)
    if found is None:
        return "not measured", None
    return ("reached" if aim.reached(found.median) else "missed"), found


def _ratio(what: str, result: str, over: str, least: float, blame: str = "") -> Aim:
    return Aim(what, result, over=over, least=least, blame=blame)


def _most(what: str, result: str, most: float, blame: str = "", side: str = "headrace") -> Aim:
    return Aim(what, result, side=side, how="figure", most=most, blame=blame)


_ES_DELETES = (
    "what remembers the deletes is an index of its own, whose log is forced to the disk in every request, too"
)
_REDIS_ROWS = (
    "turning a row into JSON and its key takes most of the client's time, and the raw client's is ready-made"
)
_DELTA_SPREAD = (
    "rows drawn from the whole table lie in all its files, and a file with a changed row is written anew"
)
_REDIS_HASH = "thirty arguments a row have to be packed and sent, and the raw client's are ready-made texts"
_REDIS_DELETES = "a delete is remembered as well as done, so that an older change does not bring the row back"
_DELTA_APPEND = (
    "rows are made columns, looked for among the table's keys, and forced to the disk; an append gets columns"
)
_LATENCY = (
    "nine processes share two cores: while Elasticsearch merges or a JVM collects garbage, a batch waits"
)

_PLAIN = (
    "a new query takes 0.2 s to its first batch, and each change is ordered, counted and watched in Python"
)
_STREAMED = "two thirds of the processor's time are Elasticsearch's and the connector's"
_LOADED = (
    "making publication, slot, topics and connector takes a second; then connector and"
    " Elasticsearch share two cores"
)
_COMMITS = "a batch is a commit in each of twenty tables, forced to the disk, which the consumer's are not"
_LARGE = "ten thousand changes are captured, read and written one after the other by parts of one machine"

AIMS: tuple[Aim, ...] = (
    _ratio("Elasticsearch, new rows ≥ 0.80 of raw bulk", "apply.elasticsearch.insert", "guarded", 0.80),
    _ratio("Elasticsearch, changed rows ≥ 0.80 of raw bulk", "apply.elasticsearch.update", "guarded", 0.80),
    _ratio(
        "Elasticsearch, deletes ≥ 0.80 of raw bulk",
        "apply.elasticsearch.delete",
        "guarded",
        0.80,
        _ES_DELETES,
    ),
    _ratio(
        "Redis json, new rows ≥ 0.70 of grouped Lua", "apply.redis.json.insert", "guarded", 0.70, _REDIS_ROWS
    ),
    _ratio(
        "Redis json, changed rows ≥ 0.70 of grouped Lua",
        "apply.redis.json.update",
        "guarded",
        0.70,
        _REDIS_ROWS,
    ),
    _ratio(
        "Redis json, deletes ≥ 0.70 of grouped Lua",
        "apply.redis.json.delete",
        "guarded",
        0.70,
        _REDIS_DELETES,
    ),
    _ratio(
        "Redis hash, new rows ≥ 0.70 of grouped Lua", "apply.redis.hash.insert", "guarded", 0.70, _REDIS_HASH
    ),
    _ratio(
        "Redis hash, changed rows ≥ 0.70 of grouped Lua",
        "apply.redis.hash.update",
        "guarded",
        0.70,
        _REDIS_HASH,
    ),
    _ratio(
        "Redis hash, deletes ≥ 0.70 of grouped Lua",
        "apply.redis.hash.delete",
        "guarded",
        0.70,
        _REDIS_DELETES,
    ),
    _ratio("Delta, new rows ≥ 0.85 of a plain append", "apply.delta.insert", "plain", 0.85, _DELTA_APPEND),
    _ratio("Delta, changed rows ≥ 0.85 of a raw merge", "apply.delta.update", "guarded", 0.85),
    _ratio("Delta, deletes ≥ 0.85 of a raw merge", "apply.delta.delete", "guarded", 0.85),
    _ratio(
        "All three sinks together ≥ 0.90 of the serial bound",
        "drain.flat.together",
        "one after the other",
        0.90,
    ),
    _ratio("≥ 2 × PGSync's throughput, changes", "peer.pgsync.streamed", "pgsync", 2.0, _STREAMED),
    _ratio("≥ 2 × PGSync's throughput, first load", "peer.pgsync.initial", "pgsync", 2.0, _LOADED),
    Aim("p50 lag ≤ PGSync's + 200 ms", "peer.pgsync.lag_p50", over="pgsync", how="gap", most=200.0),
    *(
        _ratio(
            f"≥ {least:g} × the plain consumer {where}: {store}",
            f"peer.plain_consumer.{load}.{store.lower()}",
            "plain_consumer",
            least,
            _COMMITS if (load, store) == ("many", "Delta") else _PLAIN,
        )
        for load, where, least in (
            ("flat", "on one table", 0.8),
            ("hot", "under hot keys", 1.0),
            ("many", "on 20 tables", 1.0),
        )
        for store in ("Elasticsearch", "Redis", "Delta")
    ),
    _ratio("Catch-up ≥ 3 × a steady 1,000 tx/s", "drain.flat.catch_up", "1,000 changes/s", 3.0),
    *(
        _most(f"{store}, {when}: {rank} ≤ {most:g} ms", f"latency.{load}.{key}.{rank}", most, _LATENCY)
        for load, when, ranks in (
            ("light", "lightly loaded", (("p50", 120.0), ("p99", 250.0))),
            ("half", "at half of the maximum rate", (("p50", 250.0), ("p99", 700.0))),
        )
        for key, store in (("cache", "Redis"), ("search", "Elasticsearch GET"))
        for rank, most in ranks
    ),
    _most("Delta, eight busy tables: p50 ≤ 3 s", "latency.half.lake.p50", 3000.0),
    *(
        _ratio(
            f"While a table is read anew, p99 of another in {store} ≤ 1.5 × before",
            f"resnapshot.latency.{key}.p99",
            "before",
            0.67,
        )
        for key, store in (("search", "Elasticsearch"), ("cache", "Redis"), ("lake", "the lake"))
    ),
    _ratio(
        "A run of ten times the rows takes no more memory", "resnapshot.memory", "a tenth of the rows", 0.9
    ),
    _most("`source check` of 1,000 tables with 10,000 partitions ≤ 10 s", "check.partitions", 10.0),
    _most("The watcher of a source of 50 tables takes ≤ 1 % of a core", "idle.watcher", 1.0),
    *(
        _most(
            f"10,000 rows in one transaction visible in {store} ≤ 2 s",
            f"drain.transaction.{store.lower()}",
            2.0,
            _LARGE,
        )
        for store in ("Redis", "Elasticsearch")
    ),
    _most(
        "A transaction of 1 M rows in a driver of 1 GiB heap: JVM ≤ 1,536 MiB", "large.transaction_1m", 1536.0
    ),
    *(
        _ratio(
            f"Ten times the rows in the table cost {store} no more than 1.25 × the time for a change",
            f"drain.growth.{store.lower()}",
            "10,000 rows",
            0.8,
        )
        for store in ("Redis", "Elasticsearch")
    ),
    _ratio(
        "Changes drawn from all of a large Delta table no more than 1.5 × as dear as from one of 10,000 rows",
        "scale.delta",
        "10,000 rows",
        0.67,
        _DELTA_SPREAD,
    ),
    _ratio(
        "The same with deletion vectors",
        "scale.delta.vectors",
        "10,000 rows",
        0.67,
    ),
    *(
        _ratio(
            f"A change of 50 tables costs {store} no more than 1.5 × one of a single table",
            f"scale.tables.{store.lower()}",
            "one table",
            0.67,
            "each table is a call of its own, and has a cost of its own before its first row",
        )
        for store in ("Elasticsearch", "Redis", "Delta")
    ),
)
