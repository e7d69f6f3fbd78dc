"""What somebody else has written to a document keeps no change of ours from it, and ours stay in order.

The cluster is played, by the rules of its versions; the real one is in ``tests/contract``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.outcome import APPLIED, STALE, Deferred, Outcome
from headrace.model.schema import LogicalType
from sinks.contract.story import ORDERS, at, order, table
from sinks.document import Document
from sinks.elasticsearch.bulk import Bulk, delete_line, upsert_line
from sinks.elasticsearch.client import Client, Reply
from sinks.elasticsearch.merging import documents
from sinks.elasticsearch.names import META_FIELD, field_of, version_in
from sinks.elasticsearch.overwriting import Overwriting
from sinks.elasticsearch.tombstones import Tombstones

ROWS = Document(ORDERS, field_of, objects_only=True, reserved=(META_FIELD,))


@dataclass
class Doc:
    version: int
    seq_no: int
    source: dict[str, Any] | None
    """None of one that was deleted, and whose version is remembered."""


@dataclass
class Cluster:
    """One index; ``mgets`` has how many documents each request has asked for."""

    docs: dict[str, Doc] = field(default_factory=dict)
    buried: dict[str, int] = field(default_factory=dict)
    mgets: list[int] = field(default_factory=list)
    busy: int = 0
    """So often somebody else writes between a look and the write after it."""
    _seq: itertools.count[int] = field(default_factory=itertools.count)

    # ------------------------------------------------------------ by its rules

    def live(self, key: str) -> Doc | None:
        doc = self.docs.get(key)
        return doc if doc is not None and doc.source is not None else None

    def _allows(self, kind: str, about: Mapping[str, Any]) -> bool:
        doc, live = self.docs.get(about["_id"]), self.live(about["_id"])
        if kind == "create":
            return live is None
        if "if_seq_no" in about:
            return live is not None and live.seq_no == about["if_seq_no"] and about["if_primary_term"] == 1
        if doc is None or "version" not in about:
            return True
        version: int = about["version"]
        return doc.version < version or (doc.version == version and about["version_type"] == "external_gte")

    def write(self, kind: str, about: Mapping[str, Any], source: dict[str, Any] | None) -> dict[str, Any]:
        if not self._allows(kind, about):
            return {"status": 409, "error": {"type": "version_conflict_engine_exception"}}
        key, before = about["_id"], self.docs.get(about["_id"])
        version = about.get("version") or (before.version + 1 if before else 1)
        found = self.live(key) is not None
        self.docs[key] = Doc(version, next(self._seq), source)
        return {"status": 200 if found or source is not None else 404, "_version": version}

    # ------------------------------------------------------------ requests

    def request(self, _method: str, target: str, body: Any, **_: Any) -> Reply:
        answer = self._mget(body["ids"]) if "/_mget" in target else self._bulk(target, body)
        return Reply(200, orjson.dumps(answer), {})

    def _mget(self, ids: list[str]) -> dict[str, Any]:
        self.mgets.append(len(ids))
        docs = []
        for key in ids:
            doc = self.live(key)
            if doc is None or doc.source is None:
                docs.append({"_id": key, "found": False})
                continue
            own = doc.source.get(META_FIELD)
            told = {META_FIELD: {"version": own["version"]}} if own else {}
            about = {"_version": doc.version, "_seq_no": doc.seq_no, "_primary_term": 1, "_source": told}
            docs.append({"_id": key, "found": True, **about})
        if self.busy:
            self.busy -= 1
            for key in ids:
                self.update(key)
        return {"docs": docs}

    def _bulk(self, target: str, body: bytes) -> dict[str, Any]:
        lines, items = iter(body.splitlines()), []
        for head in lines:
            ((kind, about),) = orjson.loads(head).items()
            item = self.write(kind, about, None if kind == "delete" else orjson.loads(next(lines)))
            if not target.endswith("_version"):
                item.pop("_version", None)
            items.append({kind: item})
        return {"errors": any("error" in one for item in items for one in item.values()), "items": items}

    # ------------------------------------------------------------ somebody else

    def update(self, key: str, times: int = 1) -> None:
        for _ in range(times):
            doc = self.live(key)
            if doc is not None and doc.source is not None:
                self.write("index", {"_id": key}, {**doc.source, "item": "theirs"})

    def put(self, key: str, times: int = 1) -> None:
        for _ in range(times):
            self.write("index", {"_id": key}, {"item": "theirs"})

    def remove(self, key: str, times: int = 1) -> None:
        for _ in range(times):
            self.write("delete", {"_id": key}, None)

    def forget(self, _key: str, _times: int = 1) -> None:
        self.docs = {key: doc for key, doc in self.docs.items() if doc.source is not None}

    # ------------------------------------------------------------ ours

    def later(self, changes: Mapping[str, int]) -> set[str]:
        return {key for key, version in changes.items() if self.buried.get(key, 0) > version}

    def send(self, lines: list[bytes], docs: int = 2_000) -> list[Outcome]:
        client, stones = cast("Client", self), cast("Tombstones", self)
        return Bulk(client, docs, 5_000_000, 60).send("orders", lines, Overwriting(client, "orders", stones))

    def upsert(self, number: int, offset: int) -> Outcome:
        return self.send([line(number, offset)])[0]

    def delete(self, number: int, offset: int) -> Outcome:
        version = at(offset).version
        self.buried[str(number)] = max(version, self.buried.get(str(number), 0))
        return self.send([delete_line(version, str(number))])[0]

    def item(self, number: int) -> str | None:
        doc = self.live(str(number))
        return None if doc is None or doc.source is None else doc.source.get("item")

    def own(self, number: int) -> int:
        doc = self.live(str(number))
        return 0 if doc is None or doc.source is None else version_in(doc.source)


def line(number: int, offset: int) -> bytes:
    change = order(number, at(offset), item=f"at {offset}")
    return upsert_line(ROWS, change, change.row, change.key.id)


STRANGERS = [Cluster.update, Cluster.put, Cluster.remove]


@pytest.mark.parametrize("theirs", STRANGERS)
def test_a_change_of_ours_is_applied_over_what_a_stranger_has_written(theirs: Any) -> None:
    cluster = Cluster()
    assert cluster.upsert(1, 5) is APPLIED
    theirs(cluster, "1", 20)
    assert cluster.upsert(1, 6) is APPLIED
    assert cluster.item(1) == "at 6"
    assert cluster.upsert(1, 7) is APPLIED, "the document's version is still ahead of ours"
    assert cluster.upsert(1, 6) is STALE
    assert cluster.upsert(1, 99) is APPLIED
    assert cluster.item(1) == "at 99"


@pytest.mark.parametrize("theirs", STRANGERS)
def test_a_delete_of_ours_removes_what_a_stranger_has_written(theirs: Any) -> None:
    cluster = Cluster()
    cluster.upsert(1, 5)
    theirs(cluster, "1", 20)
    cluster.delete(1, 6)
    assert cluster.item(1) is None
    assert cluster.upsert(1, 5) is STALE
    assert cluster.upsert(1, 7) is APPLIED, "Elasticsearch remembers a higher version of the deleted one"
    assert cluster.item(1) == "at 7"


def test_what_came_too_late_is_stale_though_a_stranger_has_written() -> None:
    cluster = Cluster()
    cluster.upsert(1, 5)
    cluster.update("1", 20)
    assert cluster.upsert(1, 4) is STALE
    assert cluster.delete(1, 4) is STALE
    assert cluster.item(1) == "theirs"
    assert cluster.upsert(1, 5) is APPLIED, "the same change again"
    assert cluster.item(1) == "at 5"


def test_a_version_that_was_forgotten_meanwhile_lets_no_older_change_pass() -> None:
    """The change was to be created over a deleted one; that is forgotten, and versions begin at 1."""
    cluster = Cluster()
    cluster.remove("1", 200)

    def forgetting(changes: Mapping[str, int]) -> set[str]:
        cluster.forget("1")
        return Cluster.later(cluster, changes)

    cluster.later = forgetting  # type: ignore[method-assign]
    assert cluster.upsert(1, 100) is APPLIED
    assert cluster.upsert(1, 50) is STALE
    assert cluster.item(1) == "at 100"


def test_a_stranger_that_goes_on_writing_only_puts_off() -> None:
    cluster = Cluster()
    cluster.upsert(1, 5)
    cluster.update("1", 20)
    cluster.busy = 3
    assert cluster.upsert(1, 6) is APPLIED
    assert cluster.item(1) == "at 6"
    cluster.busy = 1000
    assert isinstance(cluster.upsert(1, 7), Deferred)
    cluster.busy = 0
    assert cluster.upsert(1, 7) is APPLIED


def test_a_replay_costs_one_look_for_each_request_with_stale_changes() -> None:
    cluster = Cluster()
    numbers = range(5_000)
    assert set(cluster.send([line(number, 10_000 + number) for number in numbers])) == {APPLIED}
    assert cluster.mgets == []
    assert set(cluster.send([line(number, number) for number in numbers])) == {STALE}
    assert cluster.mgets == [2_000, 2_000, 1_000]
    cluster.mgets.clear()
    half = [line(number, (20_000 if number % 2 else 0) + number) for number in numbers]
    assert cluster.send(half, docs=5_000) == [APPLIED if number % 2 else STALE for number in numbers]
    assert cluster.mgets == [2_000, 500], "it is paged"


def test_others_operations_are_left_as_they_are() -> None:
    cluster = Cluster()
    cluster.upsert(1, 5)
    client = cast("Client", cluster)
    assert Bulk(client, 10, 1_000, 60).send("orders", [line(1, 4)]) == [STALE]
    assert cluster.mgets == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ({"id": 1, "day": "1970-01-02", META_FIELD: {"version": 7}}, (7, {"id": 1, "day": 1})),
        ({"id": 1, "day": "soon", META_FIELD: {"version": 7}}, (0, {})),
        ({"id": 1, "day": "1970-01-02"}, (0, {})),
        ({"id": 1, META_FIELD: {"version": "7"}}, (7, {"id": 1})),
        ({"id": 1, META_FIELD: {"version": None}}, (0, {})),
        ({"id": 1, META_FIELD: "mine"}, (0, {})),
    ],
)
def test_values_are_taken_from_rows_of_ours_only(source: Any, found: Any) -> None:
    days = table("days", {"id": LogicalType.INT64, "day": LogicalType.DATE}, ["id"])
    answer = {"docs": [{"_id": "1", "found": True, "_version": 9, "_source": source}]}
    client = type("Told", (), {"request": lambda *_, **__: Reply(200, orjson.dumps(answer), {})})()
    rows = documents(cast("Client", client), "days", Document(days, field_of), ["1"])
    assert rows == {"1": found}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["upsert", "delete", "late", "update", "put", "remove", "forget"]), st.integers(1, 30)
    ),
    max_size=12,
)


@given(STEPS)
def test_the_newest_change_is_shown_and_no_row_of_ours_goes_back(steps: list[tuple[str, int]]) -> None:
    cluster, offset = Cluster(), 0
    for what, number in steps:
        before, had = cluster.own(1), cluster.item(1)
        if what == "upsert":
            offset += number
            assert cluster.upsert(1, offset) is APPLIED
            assert cluster.item(1) == f"at {offset}"
        elif what == "delete":
            offset += number
            cluster.delete(1, offset)
            assert cluster.item(1) is None
        elif what == "late":
            earlier = max(0, offset - number)
            known = cluster.later({"1": at(earlier).version})  # asked before it is sent
            outcome = STALE if known else cluster.upsert(1, earlier)
            if before > at(earlier).version:
                assert outcome is STALE
                assert (cluster.own(1), cluster.item(1)) == (before, had)
        else:
            getattr(cluster, what)("1", number)
