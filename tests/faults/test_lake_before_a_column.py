"""A lake is put back to before a table had one of its columns: the column comes again, and its values."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.control.registry import Registry
from tests.support.mirror import mirrored
from tests.support.put_back import put_back
from tests.support.stack import RunningStack
from tests.support.waiting import until

pytestmark = [
    pytest.mark.deep,
    pytest.mark.stack,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("honest"),
]

NAME = "columned"


def test_a_lake_of_before_a_column_came_gets_it_again(stack: RunningStack, tmp_path: Path) -> None:
    table = "CREATE TABLE things (id int PRIMARY KEY, v text)"
    rows = "INSERT INTO things SELECT i, 'v' || i FROM generate_series(1, 20) i"
    with mirrored(stack, NAME, table, rows) as mirror:
        mirror.settle()
        lake = Path(Registry(mirror.context.registry).sink(f"{NAME}lake").settings["path"])

        def values() -> dict[str, object]:
            return {key: row.get("more") for key, row in mirror.stored("things")[f"{NAME}lake"].items()}

        mirror.database.run("UPDATE things SET v = 'changed' WHERE id = 1")
        mirror.settle()
        shutil.copytree(lake, tmp_path / "lake")
        mirror.database.run("ALTER TABLE things ADD COLUMN more int DEFAULT 3")
        until(lambda: set(values().values()) == {3}, why=values)
        mirror.settle()
        put_back(lake, tmp_path / "lake", tmp_path / "later")
        mirror.database.run("INSERT INTO things VALUES (21, 'new')")
        until(lambda: values() == {str(key): 3 for key in range(1, 22)}, why=values)
        mirror.settle()
