"""Servers that integration tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.database import Database
from tests.support.servers import MAJORS, postgres_server

_QUIET = [pytest.param(major, marks=[pytest.mark.deep] if major in (17, 16, 15) else []) for major in MAJORS]


@pytest.fixture(scope="session")
def server() -> Iterator[Database]:
    """Yield a Postgres for tests that leave nothing in it but databases of their own."""
    with postgres_server(18) as dsn:
        yield Database(dsn)


@pytest.fixture(scope="module", params=_QUIET)
def quiet_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of a Postgres of each version that tidies up only when it is told to."""
    with postgres_server(request.param, "autovacuum=off") as dsn:
        yield dsn
