"""A value that the lake cannot hold comes long after the sink was added: another policy takes it in."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.control.lag import measure
from tests.support.mirror import mirrored
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("honest"),
]


def test_a_value_that_the_lake_cannot_hold_is_let_in_as_its_letter_tells(stack: RunningStack) -> None:
    with mirrored(
        stack,
        "leases",
        "CREATE TABLE leases (id int PRIMARY KEY, until date)",
        "INSERT INTO leases VALUES (1, '2024-02-29')",
    ) as mirror:

        def told(*words: str) -> Result:
            return CliRunner().invoke(app, [*words, "--home", str(stack.home.root)])

        mirror.settle()
        mirror.database.run(
            "UPDATE leases SET until = 'infinity'", "INSERT INTO leases VALUES (2, '2024-03-01')"
        )
        until(lambda: [t.behind for t in measure(mirror.context).tables if t.sink == "leaseslake"] == [1])
        listed = json.loads(told("dlq", "list", "--sink", "leaseslake", "--json").stdout)
        (letter,) = listed["letters"]
        assert letter["code"] == "DELTA_VALUE_DATE"
        first, then = letter["remedy"].split(" && ")
        assert first in told("dlq", "list").stdout

        for wrong in ("unheld.public.leases.nobody=null", "path=/elsewhere"):
            refused = told("sink", "set", "leaseslake", wrong)
            assert (refused.exit_code, "SINK_SETTINGS_INVALID" in refused.output) == (2, True)
        assert told("sink", "set", "leasescache", "unheld=null").exit_code == 2

        for command in (first, then):
            done = told(*command.split()[1:])
            assert done.exit_code == 0, done.output
        mirror.settle()
        assert mirror.letters == []
        for rows in mirror.stored("leases").values():
            assert {row["id"]: row["until"] for row in rows.values()} == {1: "infinity", 2: 19_783}
        stored = json.loads(told("sink", "show", "leaseslake", "--json").stdout)["settings"]
        assert stored["unheld.public.leases.until"] == "nearest"
        # What is kept beside a row would be lost.
        back = told("sink", "set", "leaseslake", "unheld.public.leases.until=refuse")
        assert (back.exit_code, "beside its rows" in back.output) == (2, True)
