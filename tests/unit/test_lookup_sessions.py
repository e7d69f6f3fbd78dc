"""How long a lookup may hold others up, and which connections are kept for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from connectors.base import Source
from connectors.postgres.session import connect
from headrace.config.pipeline import OriginSpec
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from spark_jobs import doubts

SCHEMA = TableSchema(TableId("public", "t"), (Column("id", LogicalType.INT32),), ("id",))


@pytest.mark.parametrize(
    ("told", "limit", "waits"),
    [
        ({}, None, "10"),
        ({"connect_timeout": "30"}, None, "30"),
        ({}, 2, "2"),
        ({"connect_timeout": "30"}, 2, "2"),
        ({"connect_timeout": "1"}, 2, "1"),
        ({"connect_timeout": "0"}, 2, "2"),
        ({"connect_timeout": "-1"}, 2, "2"),
    ],
)
def test_parameters_let_nobody_wait_longer_than_who_connects_may(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, str], limit: int | None, waits: str
) -> None:
    seen: dict[str, Any] = {}

    def refuse(**settings: Any) -> None:
        seen.update(settings)
        raise psycopg.OperationalError

    monkeypatch.setattr(psycopg, "connect", refuse)
    with pytest.raises(psycopg.OperationalError):
        connect(told, at_most_s=limit)
    assert str(seen["connect_timeout"]) == waits


class Asked:
    """A source that tells nothing, and remembers whether it was closed."""

    def __init__(self, password: str) -> None:
        self.password = password
        self.closed = False

    def lookup(self, *_: object) -> dict[Any, Any]:
        return {}

    def close(self) -> None:
        self.closed = True


def test_a_source_keeps_no_connection_under_a_password_that_was_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Asked] = []

    def build(kind: str, address: str, password: str) -> Source:
        made.append(Asked(password))
        return cast("Source", made[-1])

    monkeypatch.setattr(doubts, "build", build)
    origin = OriginSpec(kind="postgres", address="postgresql://h/d", secret=tmp_path / "secret")
    for password in ("old", "old", "new", "new"):
        origin.secret.write_text(f"password={password}\n")
        origin.secret.chmod(0o600)
        doubts.ask(origin, SCHEMA, [], [], ())
    assert [(source.password, source.closed) for source in made] == [("old", True), ("new", False)]
