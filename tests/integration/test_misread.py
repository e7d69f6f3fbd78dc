"""A worker that tells values as others for a while: seen in its heartbeats, and kept when it is over."""

from __future__ import annotations

import pytest

from headrace.control import lag
from headrace.control.connect import Connect
from headrace.control.lag import State
from tests.integration.test_registration import MISREADING
from tests.support.mirror import Mirror, mirrored
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("honest"),
]

NAME = "otherwise"
TABLES = (
    "CREATE TABLE spans (id int PRIMARY KEY, span interval)",
    "CREATE TABLE plain (id int PRIMARY KEY, name text)",
    "INSERT INTO spans SELECT i, make_interval(years => i) FROM generate_series(1, 20) i",
    "INSERT INTO plain SELECT i, 'n' FROM generate_series(1, 20) i",
)


def words(mirror: Mirror, table: str) -> set[State]:
    return {one.state for one in lag.measure(mirror.context).tables if one.table == f"public.{table}"}


def spans(mirror: Mirror, key: str) -> set[object]:
    return {rows[key]["span"] for rows in mirror.stored("spans").values()}


def is_told_now(mirror: Mirror) -> bool:
    (seen,) = [one for one in lag.measure(mirror.context).sources if one.source == NAME]
    return seen.state is State.RESYNC_REQUIRED and "interval" in seen.reason


def test_what_was_told_as_another_value_for_a_while_stands_until_it_is_read_anew(stack: RunningStack) -> None:
    with mirrored(stack, NAME, *TABLES, settings={"heartbeat_ms": 300}) as mirror:
        mirror.settle()
        before = spans(mirror, "1")
        with Connect(mirror.context.connect_url) as connect:
            known = connect.config(f"headrace_{NAME}")
            connect.replace(f"headrace_{NAME}", {**known, "driver.options": MISREADING})
            until(lambda: is_told_now(mirror))
            mirror.database.run("UPDATE spans SET span = '7 years' WHERE id = 1")
            until(lambda: len(spans(mirror, "1") | before) == 2 and not spans(mirror, "1") & before)
            assert spans(mirror, "1") != spans(mirror, "7"), "it was told as it is"
            connect.replace(f"headrace_{NAME}", known)
        # It is over, and the newest heartbeat is right.
        until(lambda: words(mirror, "plain") == {State.STREAMING})
        until(lambda: words(mirror, "spans") == {State.RESYNC_REQUIRED})
        (remedy,) = {one.remedy for one in lag.measure(mirror.context).tables if one.remedy}
        assert remedy == f"headrace resnapshot {NAME} public.spans"
        carry_out(remedy, stack.home.root, mirror.database.run)
        mirror.settle()
        assert spans(mirror, "1") == spans(mirror, "7")
