"""Who may write: the last to have claimed the targets, and nobody else, whatever is restarted or copied."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.config.pipeline import PipelineSpec, TableSpec
from headrace.model.claim import Claim
from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.outcome import APPLIED
from headrace.model.schema import TableId, TableSchema
from sinks.base import Sink
from sinks.contract.story import ORDERS, at, delete, order
from sinks.memory import MemorySink
from spark_jobs.ownership import Fenced, Holding
from tests.support.waiting import elapse

OTHERS = replace(ORDERS, table=TableId("public", "others"))
THEIRS = Claim.new("theirs", "elsewhere", engine=False)


class Home:
    """An installation with one sink, on a store that others may use, too."""

    def __init__(self, root: Path, store: str) -> None:
        self.root = root
        self.store = store
        self.sink = MemorySink("cache", MemorySink.Config(store=store))
        self.sink.prepare(ORDERS)
        self.sink.prepare(OTHERS)

    def spec(self) -> PipelineSpec:
        return PipelineSpec(
            sink="cache",
            kind="memory",
            settings={"store": self.store},
            source="shop",
            kafka_bootstrap="127.0.0.1:1",
            placeholder="p",
            tables=tuple(
                TableSpec(topic=f"shop.{schema.table}", epoch=1, table=schema.as_dict())
                for schema in (ORDERS, OTHERS)
            ),
            checkpoint=self.root / "checkpoint",
            dead_letters=self.root / "dead",
            owner=self.root / "owner.json",
            home="here",
        )

    def start(self) -> Fenced:
        """Return what a driver that starts now writes through."""
        self.held = PipelineSpec.model_validate_json(Holding(self.spec(), lambda: self.sink).pipeline())
        return Fenced(self.sink, self.held)

    def copy(self, to: Path) -> Home:
        shutil.copytree(self.root, to)
        return Home(to, self.store)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "here").mkdir()
    return Home(tmp_path / "here", uuid.uuid4().hex)


def wait_until_it_looks_again() -> None:
    elapse(0.3)


def refused(act: object) -> str:
    with pytest.raises(SinkError) as caught:
        act()  # type: ignore[operator]
    assert not isinstance(caught.value, SinkUnavailable)
    return caught.value.code


def test_a_driver_that_starts_again_goes_on(home: Home) -> None:
    first = home.start()
    assert first.apply(ORDERS, [order(1, at(1))]) == [APPLIED]
    second = home.start()
    assert second.apply(ORDERS, [order(2, at(2))]) == [APPLIED]
    wait_until_it_looks_again()
    second.settle({("shop.public.orders", 0): 2})
    for late in (
        lambda: first.apply(ORDERS, [delete(ORDERS, 1, at(3))]),
        lambda: first.rows(ORDERS, [order(1, at(1)).key]),
        lambda: first.truncate(ORDERS, at(9)),
        lambda: first.settle({("shop.public.orders", 0): 1}),
    ):
        assert refused(late) == "SINK_FENCED"
    assert len(list(home.sink.scan(ORDERS))) == 2
    assert dict(home.sink.progress()) == {("shop.public.orders", 0): 2}


def test_of_two_copies_of_an_installation_one_writes(home: Home, tmp_path: Path) -> None:
    here = home.start()
    here.apply(ORDERS, [order(1, at(1))])
    there = home.copy(tmp_path / "there")
    there.start().apply(ORDERS, [order(2, at(2))])
    wait_until_it_looks_again()
    assert refused(lambda: here.apply(ORDERS, [order(3, at(3))])) == "SINK_FENCED"
    # Nor does it take the targets back by being started again, or by an older copy of itself.
    assert refused(home.start) == "SINK_FENCED"
    there.start()
    assert refused(home.start) == "SINK_FENCED"


def test_a_driver_that_dies_while_it_claims_starts_again(home: Home) -> None:
    class Dying(MemorySink):
        def claim(self, schemas: Sequence[TableSchema], claim: Claim, instead_of: object) -> list[TableId]:
            super().claim(schemas, claim, instead_of)  # type: ignore[arg-type]
            raise KeyboardInterrupt

    home.start()
    for _ in range(2):
        dying = Dying("cache", MemorySink.Config(store=home.store))
        with pytest.raises(KeyboardInterrupt):
            Holding(home.spec(), lambda dying=dying: dying).pipeline()  # type: ignore[misc]
    assert home.start().apply(ORDERS, [order(1, at(1))]) == [APPLIED]


def test_a_store_restored_from_a_backup_shows_a_claim_of_before(home: Home) -> None:
    home.start()
    backup = home.sink.claims([ORDERS])
    writing = home.start()
    home.sink.claim([ORDERS], backup[ORDERS.table], home.sink.claims([ORDERS]))
    wait_until_it_looks_again()
    assert refused(lambda: writing.apply(ORDERS, [order(1, at(1))])) == "SINK_FENCED"
    assert home.start().apply(ORDERS, [order(1, at(1))]) == [APPLIED]


def test_a_store_that_does_not_answer_is_asked_again(home: Home) -> None:
    class Silent(MemorySink):
        silent = True

        def claims(self, schemas: Sequence[TableSchema]) -> dict[TableId, Claim]:
            if self.silent:
                raise SinkUnavailable("no", code="NO", hint="")
            return super().claims(schemas)

    sink = Silent("cache", MemorySink.Config(store=home.store))
    holding = Holding(home.spec(), lambda: sink)
    with pytest.raises(SinkUnavailable):
        holding.pipeline()
    sink.silent = False
    assert holding.pipeline() == holding.pipeline()
    before = holding.pipeline()
    holding.give_up()
    assert holding.pipeline() != before


def test_a_claim_that_was_removed_is_no_leave_to_write(home: Home) -> None:
    fenced = home.start()
    home.sink.drop(ORDERS)
    assert refused(lambda: fenced.apply(ORDERS, [order(1, at(1))])) == "SINK_FENCED"


def test_what_is_not_writing_is_the_sinks_own(home: Home) -> None:
    fenced = home.start()
    assert isinstance(fenced, Sink)
    assert (fenced.kind, fenced.placement) == ("memory", "driver")
    assert fenced.target(ORDERS) == home.sink.target(ORDERS)


def refused_there(fenced: Fenced) -> set[str]:
    """Return what is said to whoever writes to the one target, naming it."""
    codes = set()
    for write in (fenced.prepare, lambda schema: fenced.truncate(schema, at(9))):
        with pytest.raises(SinkError) as caught:
            write(OTHERS)
        assert caught.value.table == OTHERS.table
        codes.add(caught.value.code)
    return codes


def test_a_table_that_another_installation_has_taken_is_left_to_it_and_the_others_go_on(home: Home) -> None:
    fenced = home.start()
    home.sink.claim([OTHERS], THEIRS, home.sink.claims([OTHERS]))
    wait_until_it_looks_again()
    assert refused_there(fenced) == {"SINK_FENCED"}
    fenced = home.start()
    assert refused_there(fenced) == {"SINK_FENCED"}
    left: list[set[TableId]] = []

    class Tidied(MemorySink):
        def maintain(self, seconds: float, leave: Collection[TableId] = ()) -> bool:
            left.append(set(leave))
            return False

    Fenced(Tidied("cache", MemorySink.Config(store=home.store)), home.held).maintain(1.0)
    assert left == [{OTHERS.table}]
    assert fenced.apply(ORDERS, [order(1, at(1))]) == [APPLIED]
    fenced.settle({("shop.public.orders", 0): 1, ("shop.public.others", 0): 1})
    assert dict(home.sink.progress()) == {("shop.public.orders", 0): 1}
    assert home.sink.claims([OTHERS]) == {OTHERS.table: THEIRS}
    home.sink.claim([ORDERS], THEIRS, home.sink.claims([ORDERS]))
    wait_until_it_looks_again()
    with pytest.raises(SinkError) as caught:
        fenced.apply(ORDERS, [order(1, at(1))])
    assert caught.value.table is None
    assert refused(home.start) == "SINK_FENCED"
