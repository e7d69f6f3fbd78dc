"""What stays noted of tables that are captured no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.control import take_out
from headrace.control.entries import RecoveryEntry
from headrace.control.runs.repository import Phase, change, end, topics_of
from headrace.model.schema import TableId
from tests.unit.test_run_sweeping import A, B, C, Shop

TABLE = TableId("public", "b")


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    ("phase", "otherwise"),
    [
        ("stopping", "stopping"),
        ("beginning", "beginning"),
        ("reading", "beginning"),
        ("sweeping", "beginning"),
    ],
)
def test_a_recovery_that_is_to_leave_tables_out_of_the_connector_begins_anew(
    tmp_path: Path, phase: str, otherwise: str, told: bool
) -> None:
    """Only its beginning tells publication and connector which tables there are."""
    registry = Shop(tmp_path).registry
    with registry.begin() as session:
        session.add(RecoveryEntry(source="shop", phase=phase, begun_ms=1, plan={"begun": True}))
    take_out._unregister(registry, "shop", {B}, [TABLE], told=told)
    with registry.reading() as session:
        assert session.get_one(RecoveryEntry, "shop").phase == (phase if told else otherwise)


def test_a_run_that_has_failed_is_not_about_a_topic_that_gets_the_name_again(
    tmp_path: Path,
) -> None:
    """Else it would say of the table that it has read it, once it goes on with the others."""
    shop = Shop(tmp_path)
    plan = {"done": [A, B], "failed": [B], "shadows": {"one": [B, C]}, "again": {B: [[1]]}}
    change(shop.registry, shop.job.name, plan)
    end(shop.registry, shop.job.name, Phase.FAILED)
    take_out._unregister(shop.registry, "shop", {B}, [TABLE], told=True)
    run = shop.job.run
    assert topics_of(run) == {A, C}
    assert run.plan["marks"].keys() == run.plan["ends"].keys() == {A, C}
    assert {key: run.plan[key] for key in plan} == {
        "done": [A],
        "failed": [],
        "shadows": {"one": [C]},
        "again": {},
    }
